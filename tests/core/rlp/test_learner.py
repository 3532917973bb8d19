"""The update of RLP: each part against its equation, and what the whole learns."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.records import Candidate, Cell, Evaluation, Trial
from convergence_core.rlp import advantage
from convergence_core.rlp.commitments import Commitment, ProposedSetting
from convergence_core.rlp.experts import FIRST_WEIGHT, strength, weight_after
from convergence_core.rlp.learner import SILENT, RlpState, features, learn, score
from convergence_core.rlp.outcomes import CandidateOutcomes, adjusted_mean, outcomes_of
from convergence_core.rlp.policy import (
    N_FEATURES,
    ActionPolicy,
    Steps,
    ValueFunction,
    _gradient,
    improve,
)
from convergence_core.rlp.quantiles import Quantiles
from tests.rlp.thoughts import a_commitment, helps, normal

RNG = np.random.default_rng(0)
S = np.eye(N_FEATURES)[0]
NAMES = [f"c{i}" for i in range(6)]


def course(
    sd: dict[str, float], n_generations: int, *, seed: int = 0, permutes: bool = False
) -> RlpState:
    """Return the state after generations whose forecasts err by ``sd`` of the drawn action."""
    rng, state = np.random.default_rng(seed), RlpState.first()
    for generation in range(n_generations):
        p = state.propensities(S)
        action = int(rng.random() >= p[0])
        kind = ("none", "notes")[action]
        y = rng.uniform(0.2, 0.8, len(NAMES))
        told = y[rng.permutation(len(y))] if permutes else y
        forecasts = {
            n: normal(m + sd[kind] * rng.standard_normal(), sd[kind])
            for n, m in zip(NAMES, told, strict=True)
        }
        commitment = a_commitment(
            forecasts, dict.fromkeys(NAMES, normal(0.5, 0.17)), kind=kind, generation=generation,
            log_propensity=float(np.log(p[action])),
        )  # fmt: skip
        outcomes = CandidateOutcomes(observed=dict(zip(NAMES, y.tolist(), strict=True)))
        state, _ = learn(state, commitment, outcomes, next_features=S, rng=rng)
    return state


@pytest.mark.statistical
def test_notes_that_make_forecasts_better_are_written_more_often_and_a_third_stays_without():
    useful = [course({"none": 0.3, "notes": 0.03}, 40, seed=s) for s in range(8)]
    harmful = [course({"none": 0.03, "notes": 0.3}, 40, seed=s) for s in range(8)]
    p_useful = [float(state.policy.probabilities(S)[1]) for state in useful]
    p_harmful = [float(state.policy.probabilities(S)[1]) for state in harmful]
    assert min(p_useful) > 2 / 3
    assert max(p_harmful) < 0.4
    assert all(state.propensities(S)[0] == pytest.approx(SILENT) for state in useful)
    assert all(state.propensities(S)[0] > 0.6 for state in harmful)


@pytest.mark.statistical
def test_the_model_has_weight_as_far_as_its_forecasts_beat_the_posterior():
    right = [course({"none": 0.03, "notes": 0.03}, 12, seed=s) for s in range(8)]
    wrong = [course({"none": 0.03, "notes": 0.03}, 12, seed=s, permutes=True) for s in range(8)]
    assert min(state.weight for state in right) > 0.9
    assert max(state.weight for state in wrong) < 0.1
    assert all(helps(state) for state in right)
    assert not any(helps(state) for state in wrong)


def test_the_weight_follows_its_equation():
    expected = 0.99 * 0.3 * np.exp(0.5) / (0.7 + 0.3 * np.exp(0.5)) + 0.01 * FIRST_WEIGHT
    assert weight_after(0.3, 0.5) == pytest.approx(expected)
    assert weight_after(0.4, 0.0) == pytest.approx(0.4)


def test_a_forecast_counts_for_one_to_five_trials():
    quantiles = [normal(0.7, 0.02), normal(0.5, 0.25), Quantiles(0.0, 0.5, 1.0)]
    mu = np.array([q.mean for q in quantiles])
    variance = np.array([q.variance for q in quantiles])
    nu = strength(mu, variance)
    assert nu[0] == 5.0
    assert nu[1] == pytest.approx(0.25 / 0.0625 - 1.0)
    assert nu[2] == 1.0


def test_nothing_scored_changes_nothing_and_a_state_survives_json():
    state = course({"none": 0.1, "notes": 0.1}, 5)
    empty = Commitment(generation=9, state=S)
    same, update = learn(state, empty, CandidateOutcomes(), next_features=S, rng=RNG)
    assert (same.weight, same.gains, same.policy) == (state.weight, state.gains, state.policy)
    assert update.reward is update.e_value is update.advantage is None
    again = RlpState.from_json(state.to_json())
    assert again.to_json() == state.to_json()
    assert again.policy.sha256 == state.policy.sha256
    # Versions that forecast bins left another state: a run that they began goes on from the first.
    old: Any = {"policy": [[0.0]], "weights": [0.6, 0.4], "strategies": ["winners"], "history": []}
    for value in (old, None):
        assert RlpState.from_json(value).to_json() == RlpState.first().to_json()


def test_what_was_forecast_and_noted_is_remembered():
    setting = ProposedSetting(candidate_id="s", params={}, forecast=normal(0.9, 0.01))
    commitment = a_commitment(
        {"a": normal(0.5, 0.1)}, {"a": normal(0.5, 0.2)}, notes="Low is good.", settings=(setting,)
    )
    outcomes = CandidateOutcomes(observed={"a": 0.52}, proposed={"s": 0.8})
    state, update = learn(RlpState.first(), commitment, outcomes, next_features=S, rng=RNG)
    assert state.notes == "Low is good."
    assert state.forecasts == {"a": normal(0.5, 0.1), "s": normal(0.9, 0.01)}
    scored, own = update.rows
    assert (own.subject, own.outcome, own.gain, own.posterior) == ("s", 0.8, None, None)
    assert scored.gain == pytest.approx(update.reward)
    silent = replace(commitment, thought=replace(commitment.thought, notes=""))  # type: ignore[type-var]
    assert learn(state, silent, outcomes, next_features=S, rng=RNG)[0].notes == "Low is good."


def test_a_setting_of_its_own_gets_a_place_as_far_as_those_before_were_better():
    state, own = RlpState.first(), ProposedSetting(candidate_id="s", params={}, forecast=None)
    assert state.worth_a_place == 1.0
    commitment = a_commitment({}, {"a": normal(0.5, 0.2)}, settings=(own,))
    for score_of, expected in ((0.4, 4 / 9), (0.4, 1 / 4), (0.6, 16 / 25), (0.6, 1.0)):
        outcomes = CandidateOutcomes(proposed={"s": score_of}, others=0.5)
        state, _ = learn(state, commitment, outcomes, next_features=S, rng=RNG)
        assert state.worth_a_place == pytest.approx(expected)


def test_the_policy_sees_four_features_within_bounds():
    assert features(50, budget_left=0.4, last_gain=0.2).tolist() == [1.0, 0.4, 0.25, 0.2]
    assert features(900, budget_left=1.0, last_gain=-7.0).tolist() == [1.0, 1.0, 1.0, -1.0]


# -- outcomes


def trial_of(name: str, reward: float, started_us: int | None = 9) -> Trial:
    cell = Cell(candidate_id=name, case_id="k")
    done = Evaluation(
        eval_id=name, cell=cell, generation=0, status="ok", reward=reward, started_us=started_us
    )
    return Trial(candidate=Candidate(candidate_id=name, params={}), evaluations=(done,))


def test_outcomes_are_those_of_exogenous_cells_that_began_after_the_commitment():
    posterior = dict.fromkeys(("new", "old", "unknown", "advised", "absent"), normal(0.5, 0.2))
    own = ProposedSetting(candidate_id="own", params={}, forecast=None)
    commitment = replace(a_commitment(posterior, posterior, settings=(own,)), easier={"k": 0.1})
    trials = [
        trial_of("old", 0.5, 4), trial_of("unknown", 0.5, None), trial_of("new", 0.6),
        trial_of("advised", 0.7), trial_of("own", 0.95),
    ]  # fmt: skip
    exogenous = frozenset(
        t.evaluations[0].cell for t in trials if t.candidate.candidate_id not in ("advised", "own")
    )
    found = outcomes_of(commitment, trials, exogenous)
    assert found.observed == pytest.approx({"new": 0.5})
    assert found.others == pytest.approx((0.4 + 0.4 + 0.5) / 3)
    assert found.proposed == pytest.approx({"own": 0.85})


def test_what_is_known_of_the_cases_is_taken_off():
    evaluations = trial_of("a", 0.6).evaluations
    assert adjusted_mean(evaluations, {"k": 0.2}) == pytest.approx(0.4)
    assert adjusted_mean(evaluations, {"other": 9.0}) == pytest.approx(0.6)
    assert adjusted_mean(evaluations, {"k": 5.0}) == 0.0


def test_a_missing_side_leaves_a_candidate_out():
    q = normal(0.5, 0.2)
    commitment = a_commitment({"a": q, "b": q}, {"a": q, "c": q})
    rows = score(commitment, CandidateOutcomes(observed={"a": 0.5, "b": 0.5, "c": 0.5}))
    assert [row.subject for row in rows] == ["a"]
    assert rows[0].resolution == 0.0


# -- advantages


def test_the_second_moment_is_never_centred():
    moment = advantage.second_moment(9.0, 1.0, 1)
    assert moment == 1.0
    assert advantage.second_moment(moment, 2.0, 2) == pytest.approx(0.5 + 2.0)
    assert advantage.second_moment(1.0, 0.0, 1000) == pytest.approx(0.99)
    assert advantage.sigma_of(4.0) == 2.0


def test_generalized_advantages_are_the_discounted_sum_of_deltas():
    rewards, values = np.array([0.5, -0.2, 1.0]), np.array([0.1, 0.3, 0.2, 0.4])
    gamma, decay = advantage.GAMMA, advantage.GAMMA * advantage.LAMBDA
    delta = [rewards[g] + gamma * values[g + 1] - values[g] for g in range(3)]
    direct = [sum(decay**n * delta[g + n] for n in range(3 - g)) for g in range(3)]
    assert advantage.generalized(rewards, values) == pytest.approx(direct)
    assert advantage.scaled(np.array([1.0, 1e9])) == pytest.approx([1.0 - decay, advantage.CLIP])


# -- policy


def test_the_gradient_is_that_of_the_loss():
    d = N_FEATURES
    policy, n = ActionPolicy(0.3 * RNG.standard_normal((4, d))), 30
    states, actions = RNG.uniform(-1, 1, (n, d)), RNG.integers(4, size=n)
    log_old = policy.log_probabilities(states)[np.arange(n), actions] + RNG.normal(0, 0.05, n)
    steps = Steps(states, actions, log_old, RNG.normal(size=n))
    _, gradient, _ = _gradient(policy, steps)
    for index in [(0, 0), (1, 3), (3, d - 1), (2, 2)]:
        bump = np.zeros_like(policy.theta)
        bump[index] = 1e-6
        above, below = (
            _gradient(ActionPolicy(policy.theta + sign * bump), steps)[0] for sign in (1, -1)
        )
        assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-5), index


def test_ratios_beyond_the_clip_do_not_pull_and_large_ones_are_dropped():
    def gradient(log_ratio: float) -> tuple[np.ndarray, int]:
        log_old = np.array([np.log(0.5) - log_ratio])
        steps = Steps(S[None], np.array([0]), log_old, np.array([1.0]))
        return _gradient(ActionPolicy.uniform(2), steps)[1:]

    free, _ = gradient(0.0)
    held, _ = gradient(0.3)
    gone, n_dropped = gradient(1.0)
    assert np.abs(free).max() > 0.1
    assert np.abs(held).max() < 1e-12
    assert n_dropped == 1
    assert np.abs(gone).max() < 1e-12


def test_an_update_favours_what_earned_and_stops_by_the_divergence():
    steps = Steps(
        np.tile(S, (4, 1)),
        np.arange(4),
        np.full(4, np.log(0.25)),
        np.array([-0.7, 2.0, -0.7, -0.7]),
    )
    rng = np.random.default_rng(0)
    policy, update = improve(ActionPolicy.uniform(4), steps, rng)
    p = policy.probabilities(S)
    assert p[1] == max(p)
    assert update.n_steps < 4
    assert update.kl > 0.02
    assert 0 < update.entropy < np.log(4)
    same, nothing = improve(policy, Steps.none(), rng)
    assert same is policy
    assert nothing.n_steps == 0


def test_the_policy_draws_by_its_probabilities():
    policy = ActionPolicy.of((0.3, 0.7))
    assert policy.probabilities(S) == pytest.approx([0.3, 0.7])
    assert np.mean(policy.draw(S, 4000, np.random.default_rng(2))) == pytest.approx(0.7, abs=0.03)


def test_the_value_moves_a_tenth_of_the_way_to_the_ridge():
    d = N_FEATURES
    states = RNG.uniform(-1, 1, (40, d))
    targets = states @ np.arange(float(d))
    x, y = states[-30:], targets[-30:]
    ridge = np.linalg.solve(x.T @ x + np.eye(d), x.T @ y)
    value = ValueFunction.zero().after(states, targets)
    assert value.weights == pytest.approx(0.1 * ridge)
