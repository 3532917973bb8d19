"""Candidate against champion on the same cases."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate import PairedGate
from convergence_core.gate.betting import log_wealth_of_counts

GATE = PairedGate()


def differences(mean: float, n: int, seed: int = 0) -> np.ndarray:
    """Return n differences of two rewards of 0 and 1 on cases that both find easy or hard."""
    rng = np.random.default_rng(seed)
    ease = rng.choice((0.1, 0.8), size=n)
    return (rng.random(n) < ease + mean).astype(float) - (rng.random(n) < ease)


@pytest.mark.parametrize(("sign", "decision"), [(1.0, "promote"), (-1.0, "keep")])
def test_a_clear_gain_is_promoted_and_a_clear_loss_keeps_the_champion(sign, decision):
    verdict = GATE.judge(sign * differences(0.15, 400))
    assert verdict.decision == decision
    assert sign * verdict.low > 0.0
    assert sign * verdict.high > 0.0
    assert (verdict.p_value <= 0.05) == (decision == "promote")
    assert verdict.n_to_verdict == 0


def test_few_cases_are_undecided_and_say_how_many_are_missing():
    verdict = GATE.judge(differences(0.15, 20))
    assert verdict.decision == "undecided"
    assert verdict.low < verdict.mean < verdict.high
    assert verdict.n_to_verdict is not None
    assert 20 < verdict.n_to_verdict < 2_000


def test_a_gain_below_the_minimum_effect_is_no_promotion():
    found = differences(0.05, 4_000)
    assert GATE.judge(found).decision == "promote"
    assert PairedGate(min_effect=0.1).judge(found).decision == "keep"


def test_equal_answers_decide_nothing():
    verdict = GATE.judge([0.0] * 50)
    assert verdict.decision == "undecided"
    assert verdict.mean == 0.0
    assert verdict.n_to_verdict is None


def test_no_pairs_are_undecided():
    verdict = GATE.judge([])
    assert verdict.decision == "undecided"
    assert np.isnan(verdict.mean)
    assert (verdict.low, verdict.high, verdict.n_to_verdict) == (-1.0, 1.0, None)


def test_five_cases_won_outright_suffice_at_no_effect_and_are_too_few_at_a_large_one():
    won = [1.0] * 9
    assert GATE.judge(won).decision == "promote"
    assert PairedGate(min_effect=0.6).judge(won).decision == "undecided"


def test_a_verdict_reached_at_an_earlier_look_stays():
    early = differences(0.4, 60, seed=2)
    assert GATE.judge(early).decision == "promote"
    assert GATE.judge([*early, *([0.0, -1.0, 1.0] * 40)]).decision == "promote"


@pytest.mark.parametrize("effect", [0.0, 0.2])
def test_equal_weights_change_nothing(effect: float):
    found, gate = differences(0.1, 100), PairedGate(min_effect=effect)
    assert gate.judge(found) == gate.judge(found, weights=[3.0] * 100)


def test_weights_judge_the_weighted_mean():
    found = np.concatenate(([1.0] * 30, [-1.0] * 60))
    weights = np.concatenate(([1.0] * 30, [0.05] * 60))
    order = np.random.default_rng(0).permutation(90)
    assert GATE.judge(found[order]).mean < 0.0
    verdict = GATE.judge(found[order], weights=weights[order])
    assert verdict.mean == pytest.approx(27.0 / 33.0)
    assert verdict.decision == "promote"
    assert verdict.low > 0.0


@pytest.mark.parametrize("weighted", [False, True])
def test_the_interval_ends_where_a_gate_of_that_effect_would_begin_to_reject(weighted: bool):
    found = differences(0.1, 300)
    weights = np.random.default_rng(4).uniform(0.2, 1.0, 300) if weighted else np.ones(300)
    verdict = PairedGate(alpha=0.1).judge(found, weights=weights)
    shares = weights / weights.max()
    moved = (shares * (found - verdict.low) + verdict.low + 1.0) / 2.0
    counts = np.unique(moved, return_counts=True)
    log_e = log_wealth_of_counts(*counts, (1.0 + verdict.low) / 2.0, "above")
    assert log_e == pytest.approx(np.log(20.0), abs=1e-4)


@pytest.mark.statistical
def test_equal_candidates_are_rarely_promoted_however_often_one_looks():
    rng, n_runs = np.random.default_rng(7), 200
    promoted = kept = 0
    for _ in range(n_runs):
        found = rng.choice((-1.0, 0.0, 0.0, 1.0), size=300)
        verdict = GATE.judge(found)
        promoted += verdict.decision == "promote"
        kept += verdict.decision == "keep"
    # Significance 1e-3 for each kind of error.
    for wrong in (promoted, kept):
        test = stats.binomtest(wrong, n_runs, 0.05, alternative="greater")
        assert test.pvalue > 1e-3, f"{wrong} of {n_runs}, 5% allowed"
    assert promoted + kept > 0, "a gate that never errs in 200 runs is stricter than it says"


@pytest.mark.statistical
def test_the_projection_is_of_the_right_size():
    gate, projected, needed = GATE, [], []
    for seed in range(30):
        found = differences(0.1, 6_000, seed=seed)
        verdict = gate.judge(found[:200])
        if verdict.decision == "undecided" and verdict.n_to_verdict is not None:
            projected.append(200 + verdict.n_to_verdict)
            needed.append(
                next(n for n in range(200, 6_001, 100) if gate.judge(found[:n]).n_to_verdict == 0)
            )
    assert len(projected) >= 10
    ratio = np.median(projected) / np.median(needed)
    assert 0.4 < ratio < 2.5, f"projected {np.median(projected)}, needed {np.median(needed)}"


@pytest.mark.parametrize(
    ("given", "weights", "rule"),
    [([x], None, "differences") for x in (1.2, float("nan"), [0.1])]
    + [([0.1, 0.2], w, "weights") for w in ([1.0], [1.0, 0.0], [1.0, float("inf")])],
)
def test_what_is_no_difference_or_weight_is_refused(given, weights, rule):
    with pytest.raises(ValueError, match=rule):
        GATE.judge(given, weights=weights)


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"min_effect": -0.1}, {"min_effect": 1.0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]):
    with pytest.raises(ValueError, match="must lie"):
        PairedGate(**settings)
