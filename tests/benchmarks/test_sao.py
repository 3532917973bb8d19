"""The benchmarks of preferences: their runs are repeatable, and their filters drop what was planted."""

import pytest

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.sao.filtering import filtering
from benchmarks.sao.judging import play


def test_planted_copies_and_leaks_are_dropped():
    _, _, counters, kept = filtering(400)
    assert set(counters) == {"duplicate_prompt", "contaminated"}
    assert sum(counters.values()) + kept == 400
    assert counters["duplicate_prompt"] >= 20


@pytest.mark.slow
def test_a_run_is_repeatable_and_a_judge_changes_it():
    landscape = LANDSCAPES["mixed"]
    runs = {judge: play(landscape, judge, 3) for judge in ("off", "good", "lying")}
    assert play(landscape, "good", 3) == runs["good"]
    assert len(set(runs.values())) == 3
    assert runs["off"][2] == 0.0
