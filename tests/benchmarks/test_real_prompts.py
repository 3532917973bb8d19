"""The benchmark of written prompts on a real model replays from its record."""

import pytest

from benchmarks.prompts.real import N_CALLS, Record, Task, play


def test_the_record_answers_for_both_models():
    score, exact, n_calls = play(
        ("city", "blind", 0), Record("answers", None), Record("replies", None)
    )
    assert (round(score, 3), round(exact, 3), n_calls) == (0.326, 0.011, N_CALLS)


def test_what_is_not_recorded_is_an_error_that_names_the_option():
    task = Task("city", 0, Record("answers", None))
    with pytest.raises(LookupError, match="--ask"):
        task.ask_all("A prompt that nobody wrote.", task.test[:1])
