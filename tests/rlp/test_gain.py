"""Information gain and evidence: what earns, what does not, and how often chance looks like skill."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from convergence_core.records import Candidate, Cell, Evaluation, Trial
from convergence_core.rlp.baseline import Mixture
from convergence_core.rlp.bins import N_BINS, tempered
from convergence_core.rlp.commitments import Commitment
from convergence_core.rlp.gain import (
    FLOOR,
    e_value,
    information_gain,
    interval_of,
    mixed,
    reward_of,
)
from convergence_core.rlp.gain_rows import score
from convergence_core.rlp.outcomes import CandidateOutcomes, outcomes_of
from tasks.mock.tiny_model import FIRST_BIN, KINDS, Story, encode, stories, think, tiny_model
from tests.rlp.thoughts import a_commitment, binned_normal

NOTHING = ("none",)


def forecast(story: Story, thought: tuple[str, ...]) -> np.ndarray:
    row = tiny_model().row(encode(story.prompt(thought)))[FIRST_BIN : FIRST_BIN + N_BINS]
    return np.asarray(row / row.sum())


def gains(texts: list[Story], thoughts: list[tuple[str, ...]], *, power: float = 1) -> np.ndarray:
    """The gain of each thought; its prediction raised to a power."""
    found = []
    for story, thought in zip(texts, thoughts, strict=True):
        p = tempered(forecast(story, thought), 1.0 / power)
        found.append(information_gain(p, forecast(story, NOTHING), story.trial.outcome))
    return np.array(found)


TEXTS = list(stories(1500, seed=2))


def oracles() -> list[tuple[str, ...]]:
    rng = random.Random(3)
    return [think(story.optimum, "oracle", rng) for story in TEXTS]


@pytest.mark.statistical
def test_a_thought_is_worth_what_it_says_about_the_outcome():
    rng = random.Random(3)
    mean = {
        kind: float(gains(TEXTS, [think(s.optimum, kind, rng) for s in TEXTS]).mean())
        for kind in KINDS
    }
    assert mean["oracle"] >= 0.9, mean
    assert 0.2 <= mean["partial"] <= 0.45, mean
    assert abs(mean["vague"]) <= 0.05, mean
    assert mean["none"] == 0.0


@pytest.mark.statistical
def test_thoughts_of_other_worlds_destroy_it():
    oracle = oracles()
    shuffled = gains(TEXTS, oracle[1:] + oracle[:1]).mean()
    inverted = gains(TEXTS, [(*t[:3], f"t{10 - int(t[3][1:])}") for t in oracle]).mean()
    assert shuffled <= -1.0, shuffled  # -1.2 before mixing, which softens the worst
    assert inverted <= -1.0, inverted
    pairs = zip(TEXTS, oracle[1:] + oracle[:1], strict=True)
    raw = [float(np.log(forecast(s, t) / forecast(s, NOTHING))[s.trial.outcome]) for s, t in pairs]
    assert np.mean(raw) <= -1.2


@pytest.mark.statistical
def test_sounding_more_or_less_sure_than_one_is_earns_less():
    texts, oracle = TEXTS[:600], oracles()[:600]
    honest = gains(texts, oracle).mean()
    for power in (0.5, 2.0, 4.0):
        bent = gains(texts, oracle, power=power).mean()
        assert bent < honest, (power, bent, honest)


def test_the_gain_is_bounded_and_keeps_the_mean_of_its_exponential_at_1():
    rng = np.random.default_rng(1)
    for _ in range(20):
        p, base = rng.dirichlet(np.ones(N_BINS)), rng.dirichlet(np.ones(N_BINS))
        exponentials = [math.exp(information_gain(p, base, b)) for b in range(N_BINS)]
        assert base @ exponentials == pytest.approx(1.0, abs=1e-12)
        assert min(information_gain(p, base, b) for b in range(N_BINS)) >= FLOOR
    never = np.array([1.0, 0.0])
    assert information_gain(never, np.array([0.5, 0.5]), 1) == pytest.approx(FLOOR)
    assert mixed(never, np.array([0.5, 0.5])).sum() == pytest.approx(1.0)


def test_a_reward_is_the_mean_gain_and_has_an_error_from_two_on():
    assert reward_of([0.5, -0.1]) == pytest.approx(0.2)
    assert interval_of([1.0]) is None
    assert interval_of([0.0, 1.0]) == pytest.approx((0.5, 0.5))


@pytest.mark.statistical
def test_products_within_a_generation_would_raise_false_alarms_and_means_do_not():
    """One uniform drives all four outcomes; the thought knows nothing and bets anyway."""
    rng = np.random.default_rng(5)
    base = np.array([0.5, 0.5])
    tilt = 1.0 / (1.0 + math.exp(-0.8))
    alarms = {"mean": 0, "product": 0}
    n_runs, n_generations = 4000, 30
    for _ in range(n_runs):
        log_mean = log_product = 0.0
        is_alarm = {"mean": False, "product": False}
        for _ in range(n_generations):
            outcome = int(rng.random() < 0.5)
            bet = int(rng.random() < 0.5)
            p = np.array([1.0 - tilt, tilt]) if bet else np.array([tilt, 1.0 - tilt])
            found = [information_gain(p, base, outcome)] * 4
            log_mean += math.log(e_value(found))
            log_product += sum(found)
            is_alarm["mean"] |= log_mean >= math.log(20.0)
            is_alarm["product"] |= log_product >= math.log(20.0)
        for form, alarm in is_alarm.items():
            alarms[form] += alarm
    share = {form: n / n_runs for form, n in alarms.items()}
    assert share["mean"] <= 0.05, share
    assert share["product"] > 0.2, share


def commitment_of(subjects: dict[str, tuple[np.ndarray, np.ndarray]]) -> Commitment:
    """A thought that predicts the first of each pair where its model alone predicts the second."""
    return a_commitment(
        {name: p for name, (p, _) in subjects.items()},
        {name: base for name, (_, base) in subjects.items()},
    )


@pytest.mark.statistical
def test_a_hedge_earns_nothing_on_exogenous_trials_and_self_picked_ones_carry_no_reward():
    rng = np.random.default_rng(7)
    narrow, wide = binned_normal(0.5, 0.1), binned_normal(0.5, 0.2)
    hedge = {f"c{i}": (wide, narrow) for i in range(400)}
    sd = np.where(rng.random(400) < 0.1, 0.25, 0.1)
    y = np.clip(0.5 + sd * rng.standard_normal(400), 0.0, 1.0)
    picks = {f"own{i}": (wide, narrow) for i in range(50)}
    commitment = replace(commitment_of({**hedge, **picks}), committed_us=5)
    trials = [
        *(trial_of(f"c{i}", float(reward)) for i, reward in enumerate(y)),
        # The thought picked these itself, where rewards are far from what anybody expects.
        *(trial_of(name, 0.0) for name in picks),
    ]
    exogenous = frozenset(t.evaluations[0].cell for t in trials[:400])

    def gains_on(cells: frozenset[Cell]) -> list[float]:
        scored = score(commitment, outcomes_of(commitment, trials, cells), Mixture(), 1.0)
        return [row.gain for row in scored.own("t")]

    assert len(gains_on(exogenous)) == 400
    assert np.mean(gains_on(exogenous)) < 0.0
    everything = frozenset(t.evaluations[0].cell for t in trials)
    assert len(gains_on(everything)) == 450
    assert np.mean(gains_on(everything)) > 0.1  # what a system would pay that took any outcome


def trial_of(name: str, reward: float) -> Trial:
    cell = Cell(candidate_id=name, case_id="k")
    done = Evaluation(
        eval_id=name, cell=cell, generation=0, status="ok", reward=reward, started_us=9
    )
    return Trial(candidate=Candidate(candidate_id=name, params={}), evaluations=(done,))


def test_a_missing_arm_voids_the_pair_and_never_one_side():
    p, base = binned_normal(0.5, 0.2), binned_normal(0.4, 0.2)
    whole = commitment_of({"a": (p, base), "b": (p, base)})
    outcomes = CandidateOutcomes(observed={"a": 4, "b": 5})
    assert len(score(whole, outcomes, Mixture(), 1.0).rows) == 2
    broken = replace(whole, no_thought={"a": base})
    assert [row.subject for row in score(broken, outcomes, Mixture(), 1.0).rows] == ["a"]
    broken = replace(whole, forecasts={"t": {"b": p}})
    assert [row.subject for row in score(broken, outcomes, Mixture(), 1.0).rows] == ["b"]
    broken = replace(whole, estimator=None)
    assert score(broken, outcomes, Mixture(), 1.0).rows == ()


def test_a_thought_that_moves_no_prediction_has_no_weight_and_no_rows():
    """What the model predicts without it, however well, is no merit of the thought."""
    good, poor = binned_normal(0.5, 0.05), binned_normal(0.5, 0.4)
    same = replace(commitment_of({"a": (good, good)}), statistical={"a": poor})
    assert same.moved_nothing("t")
    assert same.ignored_reason(same.thoughts[0]) == "it moved no prediction"
    assert same.weighted == ()
    assert score(same, CandidateOutcomes(observed={"a": 5}), Mixture(), 1.0).rows == ()
    moved = replace(same, no_thought={"a": binned_normal(0.5, 0.051)})
    assert moved.weighted == moved.thoughts
    unread = replace(same, forecasts={}, notes=("t/a: HTTP 400", "other"))
    assert unread.ignored_reason(unread.thoughts[0]) == "t/a: HTTP 400"
    assert replace(unread, notes=()).weighted == ()
