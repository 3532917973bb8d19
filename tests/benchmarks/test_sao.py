"""The benchmark of preferences: their filters drop what was planted."""

from benchmarks.sao.filtering import filtering


def test_planted_copies_and_leaks_are_dropped():
    _, _, counters, kept = filtering(400)
    assert set(counters) == {"duplicate_prompt", "contaminated"}
    assert sum(counters.values()) + kept == 400
    assert counters["duplicate_prompt"] >= 20
