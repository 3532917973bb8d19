"""Patience means patience, and a lucky first estimate does not end a run."""

import pytest

from convergence_core.stopper import Progress, Stopper

STOPPER = Stopper(patience=2, min_improvement=0.01)


def after(*generations: dict[str, float], stopper: Stopper = STOPPER) -> Progress:
    progress = Progress()
    for id_to_mean in generations:
        progress = stopper.update(progress, id_to_mean)
    return progress


def test_one_flat_generation_does_not_stop():
    assert not STOPPER.should_stop(after({"a": 0.5}, {"a": 0.5}))


def test_patience_flat_generations_in_a_row_stop():
    assert STOPPER.should_stop(after({"a": 0.5}, {"a": 0.5}, {"a": 0.505, "b": 0.509}))


def test_an_improvement_starts_patience_anew():
    progress = after({"a": 0.5}, {"a": 0.5}, {"a": 0.5, "b": 0.51}, {"a": 0.5, "b": 0.51})
    assert progress == Progress(leader="b", n_flat=1)


def test_the_fall_of_a_lucky_leader_is_not_held_against_its_successor():
    # `a` seemed worth .9; now it is worth .6, and `b` with .7 is ahead of it.
    assert after({"a": 0.9}, {"a": 0.6, "b": 0.7}) == Progress(leader="b", n_flat=0)


def test_small_steps_add_up():
    means = [{"a": 0.5, "b": 0.5 + 0.004 * i} for i in range(1, 4)]
    assert after({"a": 0.5}, *means, stopper=Stopper(patience=9)).leader == "b"


def test_equal_means_are_no_improvement_even_without_a_threshold():
    assert after({"a": 0.5}, {"a": 0.5}, stopper=Stopper(min_improvement=0.0)).n_flat == 1


def test_generations_without_rewards_are_flat():
    assert after({}, {}) == Progress(leader=None, n_flat=2)


def test_a_switched_off_stopper_never_stops():
    assert not Stopper(enabled=False, patience=1).should_stop(Progress(leader="a", n_flat=9))


@pytest.mark.parametrize("progress", [Progress(), Progress(leader="a", n_flat=2)])
def test_progress_survives_json(progress: Progress):
    assert Progress.from_json(progress.to_json()) == progress


@pytest.mark.parametrize("value", [None, [], {}, {"leader": 1, "n_flat": 0}, {"leader": "a"}])
def test_what_is_no_progress_is_refused(value: object):
    with pytest.raises(ValueError, match="not a stopper"):
        Progress.from_json(value)  # type: ignore[arg-type]
