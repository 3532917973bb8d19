"""The benchmark of durable pairs: what it makes of its rounds."""

from benchmarks.durable import busy, ratio


def test_a_ratio_is_of_the_same_round_and_told_as_least_and_most():
    rates = {"naive": [100.0, 400.0, 200.0], "ours": [150.0, 200.0, 400.0]}
    assert ratio(rates, "ours") == "0.50 to 2.00"
    assert ratio(rates, "naive") == "1.00 to 1.00"


def test_processes_that_keep_the_machine_busy_end_with_the_measurement():
    with busy(2) as counting:
        assert [one.poll() for one in counting] == [None, None]
    assert all(one.returncode is not None for one in counting)
