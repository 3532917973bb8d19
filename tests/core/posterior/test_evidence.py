"""An archive as arrays."""

import pytest

from convergence_core.posterior.evidence import Evidence
from tests.core.posterior.archives import archive


def test_cases_outside_of_the_given_ones_do_not_count():
    evidence = archive({"a": {"c0": 0.2, "old": 1.0}, "b": {"old": 1.0}})
    table = Evidence.gather(evidence, case_ids=["c0", "c1"])
    assert table.ids == ("a",)
    assert table.mean.tolist() == [[0.2, 0.0]]


def test_zeros_and_ones_are_told():
    assert Evidence.gather(archive({"a": {"c0": 1, "c1": 0}})).binary
    assert not Evidence.gather(archive({"a": {"c0": 1, "c1": 0.5}})).binary


def test_repeats_of_a_cell_count_as_one_mean_and_tell_their_spread():
    rewards = {"a": {("c0", 0): 0.2, ("c0", 1): 0.6, ("c1", 0): 1.0}}
    table = Evidence.gather(archive(rewards))
    assert table.mean.tolist() == [[0.4, 1.0]]
    assert table.count.tolist() == [[2.0, 1.0]]
    assert table.repeat_sum == pytest.approx(0.2**2 + 0.2**2)
    assert table.repeat_dof == 1
