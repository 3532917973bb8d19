"""Patience means patience, a lucky first estimate does not end a run, and certainty may."""

from dataclasses import replace

import pytest

from convergence_core.config.optimization import EarlyStoppingConfig
from convergence_core.records import Ranked
from convergence_core.search.recommend import Lead, Recommendation
from convergence_core.search.study_state import StopperState

RULE = EarlyStoppingConfig(patience=2, min_improvement=0.01)


def handing_over(
    candidate_id: str,
    *,
    gain: float = 0.0,
    probability: float = 0.5,
    rival: str | None = None,
    feasible: float | None = None,
    rival_is_feasible: bool = True,
) -> Recommendation:
    """Return a recommendation with this lead over the rival; none: there was no leader."""
    lead = None
    if rival is not None:
        lead = Lead(
            mean=gain,
            probability=probability,
            rival_is_feasible=rival_is_feasible,
        )
    first = Ranked(
        candidate_id=candidate_id,
        mean=0.5,
        low=0.4,
        high=0.6,
        cautious=0.45,
        n_cells=1,
        n_cases=1,
        feasible=feasible,
    )
    return Recommendation(
        candidate_id=candidate_id,
        mean=0.5,
        low=0.4,
        high=0.6,
        level=0.95,
        delta=0.01,
        probability_within=0.5,
        ranking=(first,),
        lead=lead,
    )


FIRST = StopperState(leader="a")


def test_one_flat_generation_does_not_stop():
    progress = FIRST.after(handing_over("a", rival="a"), RULE)
    assert progress.n_flat == 1
    assert progress.reason(RULE) is None


def test_patience_flat_generations_in_a_row_stop_and_say_so():
    progress = FIRST
    for _ in range(2):
        progress = progress.after(handing_over("b", gain=0.009, probability=0.99, rival="a"), RULE)
    assert progress.leader == "a"
    reason = progress.reason(RULE)
    assert reason is not None
    assert "the last 2 generations" in reason
    assert "0.01" in reason


def test_a_credible_improvement_starts_patience_anew():
    flat = replace(FIRST, n_flat=1)
    better = handing_over("b", gain=0.02, probability=0.95, rival="a")
    assert flat.after(better, RULE) == StopperState(leader="b", n_flat=0)


def test_a_gain_that_may_be_luck_is_no_improvement():
    lucky = handing_over("b", gain=0.2, probability=0.8, rival="a")
    assert FIRST.after(lucky, RULE) == StopperState(leader="a", n_flat=1)


def test_a_leader_that_came_to_be_infeasible_is_replaced():
    """Whoever follows is worth less, and that is no flat generation."""
    follows = handing_over("b", gain=-0.2, probability=0.01, rival="a", rival_is_feasible=False)
    assert replace(FIRST, n_flat=1).after(follows, RULE) == StopperState(leader="b")


def test_while_nothing_is_feasible_no_generation_is_flat():
    progress = FIRST
    for _ in range(4):
        unfit = handing_over("a", rival="a", feasible=0.3, rival_is_feasible=False)
        progress = progress.after(unfit, RULE)
    assert progress == FIRST
    assert progress.reason(RULE) is None
    fit = handing_over("b", gain=-0.1, probability=0.1, rival="a", rival_is_feasible=False)
    assert progress.after(fit, RULE) == StopperState(leader="b")


@pytest.mark.parametrize(("left", "stops"), [(0.005, True), (0.01, True), (0.02, False)])
def test_nothing_left_to_gain_stops_and_says_so(left: float, stops: bool):
    progress = FIRST.after(handing_over("a", rival="a"), RULE, regret_upper_bound=left)
    reason = progress.reason(RULE)
    assert (reason is not None) == stops
    if reason is not None:
        assert "nothing is left to gain" in reason
        assert "95 %" in reason


def test_a_switched_off_stopper_never_stops():
    off = EarlyStoppingConfig(enabled=False, patience=1)
    assert StopperState(leader="a", n_flat=9, regret_upper_bound=0.0).reason(off) is None


@pytest.mark.parametrize(
    "progress", [StopperState(), StopperState(leader="a", n_flat=2, regret_upper_bound=0.25)]
)
def test_progress_survives_json(progress: StopperState):
    assert StopperState.from_json(progress.to_json()) == progress
