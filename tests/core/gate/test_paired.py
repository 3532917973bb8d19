"""Candidate against champion on the same cases."""

import numpy as np
import pytest
from scipy import stats

from convergence_core.gate.intervals import one_look_p
from convergence_core.gate.paired import PairedGate, level_of_look, share_left

GATE = PairedGate()
LEVEL = level_of_look(0.05, [0])


def differences(mean: float, n: int, seed: int = 0) -> np.ndarray:
    """Return n differences of two rewards of 0 and 1 on cases that both find easy or hard."""
    rng = np.random.default_rng(seed)
    ease = rng.choice((0.1, 0.8), size=n)
    return (rng.random(n) < ease + mean).astype(float) - (rng.random(n) < ease)


@pytest.mark.parametrize(("sign", "decision"), [(1.0, "promote"), (-1.0, "keep")])
def test_a_clear_gain_is_promoted_and_a_clear_loss_keeps_the_champion(sign, decision):
    verdict = GATE.judge(sign * differences(0.15, 400), level=LEVEL)
    assert verdict.decision == decision
    assert sign * verdict.low > 0.0
    assert sign * verdict.high > 0.0
    assert (verdict.p_value <= LEVEL) == (decision == "promote")


def test_few_cases_are_undecided_and_say_how_many_are_missing():
    given = differences(0.15, 20)
    verdict, forecast = GATE.judge(given, level=LEVEL), GATE.forecast(given)
    assert verdict.decision == "undecided"
    assert verdict.low < verdict.mean < verdict.high
    assert forecast is not None
    low, median, _ = forecast
    assert 0 < low < median < 2_000
    assert GATE.forecast(given) == forecast, "the same pairs, the same forecast"


def test_a_gain_below_the_minimum_effect_is_no_promotion():
    found = differences(0.05, 4_000)
    assert GATE.judge(found, level=LEVEL).decision == "promote"
    assert PairedGate(min_effect=0.1).judge(found, level=LEVEL).decision == "keep"


def test_five_cases_won_outright_suffice_at_no_effect_and_are_too_few_at_a_large_one():
    won = [1.0] * 9
    assert GATE.judge(won, level=LEVEL).decision == "promote"
    assert PairedGate(min_effect=0.6).judge(won, level=LEVEL).decision == "undecided"


@pytest.mark.parametrize("effect", [0.0, 0.2])
def test_equal_weights_change_nothing(effect: float):
    found, gate = differences(0.1, 100), PairedGate(min_effect=effect)
    assert gate.judge(found, level=LEVEL) == gate.judge(found, [3.0] * 100, level=LEVEL)


def test_weights_judge_the_weighted_mean():
    found = np.concatenate(([1.0] * 30, [-1.0] * 60))
    weights = np.concatenate(([1.0] * 30, [0.05] * 60))
    order = np.random.default_rng(0).permutation(90)
    assert GATE.judge(found[order], level=LEVEL).mean < 0.0
    verdict = GATE.judge(found[order], weights=weights[order], level=LEVEL)
    assert verdict.mean == pytest.approx(27.0 / 33.0)
    assert verdict.decision == "promote"
    assert verdict.low > 0.0


@pytest.mark.parametrize("support", [(-1.0, 0.0, 0.3), (-1.0, 0.02, 0.6), (-1.0, -0.3, 1.0)])
def test_one_look_keeps_its_level_on_every_distribution_of_three_values(support):
    """The probability of each outcome is known, so that the level is computed, not sampled."""
    n, level = 12, 0.045
    outcomes = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
    rejects = np.array([one_look_p(np.repeat(support, k)) <= level for k in outcomes])
    assert rejects.any()
    for low in np.linspace(0.0, 0.3, 61):
        rest = np.linalg.solve([support[1:], (1.0, 1.0)], (low, 1.0 - low))  # a mean of 0
        if rest.min() >= 0.0:
            chances = stats.multinomial.pmf(outcomes, n, (low, *rest))
            assert chances[rejects].sum() <= level, (support, low)


def test_a_few_wins_without_a_loss_are_weak_evidence_at_any_n():
    for n in (20, 100, 1_000):
        p = [one_look_p([1.0] * k + [0.0] * (n - k)) for k in (1, 2, 3, 4)]
        # max over lambda of exp(-lambda) P(Poisson(lambda) >= k), times 1.25
        assert p == pytest.approx([0.3125, 0.128, 0.056, 0.0254], rel=0.12)


def test_one_look_at_wins_and_losses_is_the_sign_test():
    values = [1.0] * 14 + [-1.0] * 5 + [0.0] * 11
    assert one_look_p(values) == pytest.approx(
        stats.binomtest(14, 19, alternative="greater").pvalue
    )


@pytest.mark.statistical
def test_one_look_finds_small_gains():
    rng, n_runs = np.random.default_rng(3), 60
    n_found = 0
    for _ in range(n_runs):
        x, y = np.clip(0.5 + 0.16 * rng.standard_normal((2, 30)), 0.0, 1.0)
        n_found += one_look_p(np.clip(x + 0.1, 0.0, 1.0) - y) <= level_of_look(0.05, [0])
    # At least 28 of 100, at significance 1e-3.
    assert stats.binomtest(int(n_found), n_runs, 0.28, alternative="less").pvalue > 1e-3, n_found


def test_looks_at_the_same_cases_share_alpha_and_fresh_cases_renew_it():
    levels = [level_of_look(0.05, [k] * 20) for k in range(30)]
    assert levels[0] == pytest.approx(0.045)
    assert sum(levels) <= 0.05 + 1e-12
    assert 0.05 - levels[0] == pytest.approx(0.05 * share_left([1] * 20))
    assert level_of_look(0.05, [1] * 10 + [0] * 10) == pytest.approx(0.55 * levels[0])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_the_interval_of_one_look_leaves_out_what_it_rejects(sign: float, effect: float):
    gate, given = PairedGate(min_effect=effect), sign * differences(0.4, 400)
    verdict = gate.judge(given, level=LEVEL)
    assert verdict.decision == ("promote" if sign > 0.0 else "keep")
    assert (verdict.low if sign > 0.0 else -verdict.high) > sign * effect
    assert verdict.p_value == pytest.approx(one_look_p((given - effect) / (1.0 + effect)))


@pytest.mark.parametrize("effect", [0.0, 0.1])
def test_the_probability_of_being_better_is_students(effect: float):
    given = differences(0.15, 30)
    gate = PairedGate(min_effect=effect)
    found = gate.judge(given, level=LEVEL).probability_better
    one_sided = stats.ttest_1samp(given, effect, alternative="greater").pvalue
    assert found == pytest.approx(1.0 - one_sided, abs=1e-12)
    weighted = gate.judge(given, np.full(30, 7.0), level=LEVEL)
    assert weighted.probability_better == found


@pytest.mark.parametrize(
    ("given", "weights", "rule"),
    [([x], None, "differences") for x in (1.2, float("nan"), [0.1])]
    + [([0.1, 0.2], w, "weights") for w in ([1.0], [1.0, 0.0], [1.0, float("inf")])],
)
def test_what_is_no_difference_or_weight_is_refused(given, weights, rule):
    with pytest.raises(ValueError, match=rule):
        GATE.judge(given, weights=weights, level=LEVEL)
