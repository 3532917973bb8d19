"""The parts of the learner, each against its equation."""

import numpy as np
import pytest

from convergence_core.rlp import advantage, replay as replays
from convergence_core.rlp.baseline import FLOOR, Mixture
from convergence_core.rlp.bins import (
    N_BINS,
    TENTHS,
    RewardBins,
    normalized,
    relative_entropy,
    tempered,
)
from convergence_core.rlp.exemplars import exemplars, lower_bound, worth_rescoring
from convergence_core.rlp.policy import Steps, StrategyPolicy, ValueFunction, _gradient, improve
from convergence_core.rlp.replay import Replay, ReplayRow
from tests.rlp.thoughts import a_thought, binned_normal

RNG = np.random.default_rng(0)


# -- bins


def test_bins_are_tenths_and_the_last_holds_1():
    rewards = (-0.1, 0.0, 0.0999, 0.1, 0.3 - 1e-17, 0.29999999999999998, 0.95, 1.0, 1.1)
    assert [TENTHS.bin_of(x) for x in rewards] == [0, 0, 0, 1, 3, 3, 9, 9, 9]


def test_weights_become_probabilities_or_are_refused():
    p = normalized([0, 0, 1, 3])
    assert p.sum() == pytest.approx(1.0)
    assert p.min() > 0
    for wrong in ([0, 0], [-1, 2], [float("nan"), 1], [[1.0]]):
        with pytest.raises(ValueError, match="weights"):
            normalized(np.array(wrong))


def test_a_normal_in_bins_has_its_mean_and_variance():
    p = binned_normal(0.45, 0.12)
    assert TENTHS.mean_of(p) == pytest.approx(0.45, abs=2e-3)
    # Counting the spread within the bins twice is the price of not knowing where in them.
    assert TENTHS.variance_of(p) == pytest.approx(0.12**2 + 2 / 1200, abs=1e-3)


def test_temperature_1_changes_nothing_and_2_flattens():
    p = normalized(RNG.random(N_BINS))
    assert tempered(p, 1.0) == pytest.approx(p)
    entropies = [relative_entropy([tempered(p, t)]) for t in (0.5, 1.0, 2.0)]
    assert 0 < entropies[0] < entropies[1] < entropies[2] < 1
    assert relative_entropy([np.full(N_BINS, 0.1)]) == pytest.approx(relative_entropy([]))


# -- where the bins lie


def test_bins_lie_where_trials_were_with_room_above():
    bins = RewardBins.of([0.20, 0.16, 0.24, 0.18])
    assert [bins.low, bins.high] == pytest.approx([0.152, 0.32])
    assert [bins.bin_of(x) for x in (0.0, 0.152, 0.17, 0.319, 0.32, 1.0)] == [0, 0, 1, 9, 9, 9]
    assert len(bins.edges) == N_BINS + 1
    p = binned_normal(0.5, 0.1)
    assert bins.mean_of(p) == pytest.approx(0.152 + 0.168 * TENTHS.mean_of(p))
    assert bins.variance_of(p) == pytest.approx(0.168**2 * TENTHS.variance_of(p))
    # Of equal rewards a twentieth is spanned; of few trials nothing is known; 0 and 1 are the ends.
    assert RewardBins.of([0.5] * 9).width == pytest.approx(1.1 * 0.05)
    assert RewardBins.of([0.5] * 3) == TENTHS
    assert RewardBins.of([0.0, 0.4, 0.7, 1.0]) == TENTHS


# -- baseline


def test_the_baseline_follows_the_better_predictor_and_drops_neither():
    mixture = Mixture()
    for _ in range(50):
        mixture = mixture.after([[0.5, 0.4], [0.1, 0.1]])
    assert mixture.weights[1] == pytest.approx(FLOOR)
    assert sum(mixture.weights) == pytest.approx(1.0)
    p = mixture.predict([np.array([1.0, 0.0]), np.array([0.0, 1.0])])
    assert p == pytest.approx([0.95, 0.05])
    assert mixture.after([]) is mixture
    assert mixture.after([[], []]) is mixture


def test_one_update_of_the_baseline_is_its_equation():
    v = np.array([0.5, 0.5]) ** 0.9 * np.array([np.sqrt(0.2 * 0.3), np.sqrt(0.25 * 0.2)])
    after = Mixture().after([[0.2, 0.3], [0.25, 0.2]])
    assert after.weights == pytest.approx(tuple(v / v.sum()))


# -- advantages


def test_group_advantages_are_scaled_and_sum_to_0():
    found = advantage.group_advantages([1.0, 0.0, 0.5, 0.5], sigma=0.5)
    assert found == pytest.approx([4 / 3, -4 / 3, 0.0, 0.0])
    assert advantage.group_advantages([3.0], 1.0).tolist() == [0.0]
    assert max(advantage.group_advantages([100.0, 0.0], 0.1)) == advantage.CLIP


def test_the_second_moment_is_never_centred():
    moment = advantage.second_moment(9.0, [1.0, 1.0], 1)
    assert moment == 1.0
    assert advantage.second_moment(moment, [2.0], 2) == pytest.approx(0.5 + 2.0)
    assert advantage.second_moment(moment, [], 5) == moment
    assert advantage.second_moment(1.0, [0.0], 1000) == pytest.approx(0.99)
    assert advantage.sigma_of(4.0) == 2.0


def test_generalized_advantages_are_the_discounted_sum_of_deltas():
    rewards, values = np.array([0.5, -0.2, 1.0]), np.array([0.1, 0.3, 0.2, 0.4])
    delta = [rewards[g] + 0.9 * values[g + 1] - values[g] for g in range(3)]
    direct = [sum((0.9 * 0.8) ** n * delta[g + n] for n in range(3 - g)) for g in range(3)]
    found = advantage.generalized(rewards, values, gamma=0.9, lam=0.8)
    assert found == pytest.approx(direct)
    assert advantage.scaled(np.array([1.0, 1e9]), gamma=0.9, lam=0.8) == pytest.approx(
        [1.0 - 0.9 * 0.8, advantage.CLIP]
    )


# -- policy


def test_the_gradient_is_that_of_the_loss():
    policy, n = StrategyPolicy(0.3 * RNG.standard_normal((4, 7))), 30
    states, actions = RNG.uniform(-1, 1, (n, 7)), RNG.integers(4, size=n)
    log_old = policy.log_probabilities(states)[np.arange(n), actions] + RNG.normal(0, 0.05, n)
    steps = Steps(states, actions, log_old, RNG.normal(size=n))
    _, gradient, _ = _gradient(policy, steps, 0.2)
    for index in [(0, 0), (1, 3), (3, 6), (2, 2)]:
        bump = np.zeros_like(policy.theta)
        bump[index] = 1e-6
        above, below = (
            _gradient(StrategyPolicy(policy.theta + sign * bump), steps, 0.2)[0]
            for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-5), index


def test_ratios_beyond_the_clip_do_not_pull_and_large_ones_are_dropped():
    def gradient(log_ratio: float) -> tuple[np.ndarray, int]:
        log_old = np.array([np.log(0.5) - log_ratio])
        steps = Steps(np.ones((1, 7)), np.array([0]), log_old, np.array([1.0]))
        return _gradient(StrategyPolicy.uniform(2), steps, 0.2)[1:]

    free, _ = gradient(0.0)
    held, _ = gradient(0.3)
    gone, n_dropped = gradient(1.0)
    assert np.abs(free).max() > 0.1
    assert np.abs(held).max() < 1e-12
    assert n_dropped == 1
    assert np.abs(gone).max() < 1e-12


def test_an_update_favours_what_earned_and_stops_by_the_divergence():
    steps = Steps(
        np.tile(np.eye(7)[0], (4, 1)),
        np.arange(4),
        np.full(4, np.log(0.25)),
        np.array([-0.7, 2.0, -0.7, -0.7]),
    )
    rng = np.random.default_rng(0)
    policy, update = improve(StrategyPolicy.uniform(4), steps, rng)
    p = policy.probabilities(np.eye(7)[0])
    assert p[1] == max(p)
    assert update.n_steps < 4
    assert update.kl > 0.02
    assert 0 < update.entropy < np.log(4)
    same, nothing = improve(policy, Steps.none(), rng)
    assert same is policy
    assert nothing.n_steps == 0


def test_the_policy_draws_by_its_probabilities():
    policy = StrategyPolicy(np.array([[1.0] + [0.0] * 6, [0.0] * 7]))
    s = np.eye(7)[0]
    drawn = policy.draw(s, 4000, np.random.default_rng(2))
    expected = float(policy.probabilities(s)[1])
    assert np.mean(drawn) == pytest.approx(expected, abs=0.03)


def test_the_value_moves_a_tenth_of_the_way_to_the_ridge():
    states = RNG.uniform(-1, 1, (40, 7))
    targets = states @ np.arange(7.0)
    x, y = states[-30:], targets[-30:]
    ridge = np.linalg.solve(x.T @ x + np.eye(7), x.T @ y)
    value = ValueFunction.zero().after(states, targets)
    assert value.weights == pytest.approx(0.1 * ridge)


# -- calibration, replay, exemplars


@pytest.mark.statistical
def test_calibration_finds_the_temperature():
    rng = np.random.default_rng(4)
    true = rng.dirichlet(np.full(N_BINS, 0.5), size=3000)
    observed = [int(rng.choice(N_BINS, p=p)) for p in true]
    overconfident = tempered(true, 0.6)
    assert replays.calibrated(overconfident, observed) == pytest.approx(1 / 0.6, abs=0.15)
    for sharpness in (0.2, 0.7, 1.0, 3.0):
        told = tempered(true[:200], sharpness)
        losses = [
            -np.mean(np.log([tempered(p, t)[o] for p, o in zip(told, observed, strict=False)]))
            for t in replays.GRID
        ]
        found = replays.calibrated(told, observed[:200])
        assert found == replays.GRID[int(np.argmin(losses))]
    assert replays.calibration_is_due(49, 50)
    assert not replays.calibration_is_due(50, 99)


def row(name: str, gain: float, subject: str = "c") -> ReplayRow:
    flat = (0.1,) * N_BINS
    return ReplayRow(
        generation=0,
        thought_id=name,
        subject=subject,
        observed=1,
        forecast=flat,
        no_thought=flat,
        statistical=flat,
        p=0.1,
        baseline=0.1,
        gain=gain,
        resolution=0.1,
        estimator="echo",
    )


def test_the_replay_keeps_the_newest_and_forgets_thoughts_without_rows():
    replay = Replay(capacity=3).after(
        [row("a", 1.0), row("b", 2.0)], [a_thought("a"), a_thought("b")]
    )
    replay = replay.after([row("b", 3.0), row("b", 4.0)], [a_thought("b")])
    assert [r.gain for r in replay.rows] == [2.0, 3.0, 4.0]
    assert set(replay.thoughts) == {"b"}
    forecasts, observed = replay.forecasts()
    assert forecasts.shape == (6, N_BINS)
    assert observed == [1] * 6
    assert Replay().forecasts()[1] == []


def test_exemplars_are_sure_helpers_and_no_two_alike():
    sure = [row("good", 1.0 + 0.01 * i) for i in range(8)]
    twin = [row("twin", 0.9 + 0.01 * i) for i in range(8)]
    other = [row("other", 0.5 + 0.01 * i) for i in range(8)]
    bad = [row("bad", -1.0 + 0.01 * i) for i in range(8)]
    few = [row("few", 2.0)]
    replay = Replay().after(
        [*sure, *twin, *other, *bad, *few],
        [
            a_thought("good", text="low temperature helps"),
            a_thought("twin", text="Low temperature helps!"),
            a_thought("other", text="the large model is better"),
            a_thought("bad", text="high is good"),
            a_thought("few", text="new"),
        ],
    )
    assert [t.thought_id for t in exemplars(replay)] == ["good", "other"]
    assert [t.thought_id for t in worth_rescoring(replay, most=2)] == ["few"]
    assert lower_bound([1.0]) == -np.inf
