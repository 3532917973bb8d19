"""Contextual arms against the regressions that they stand for."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import multivariate_t

from convergence_core.bandit import contextual, features
from convergence_core.bandit.contextual import SCALE, SHAPE, SHARPNESS, TAUS, ContextualArms
from convergence_core.bandit.features import request_features

LEVELS = {"arms": 5, "features": 3, "pairs": 2, "users": 4}


def arms_of(n: int) -> ContextualArms:
    return ContextualArms(np.full(n, np.nan), np.ones(n))


def requests(n: int, seed: int = 0) -> list[tuple[int, float, dict[str, Any], str]]:
    """Return arm, reward, context and user; the numbers lie far from 0 and grow."""
    rng = np.random.default_rng(seed)
    return [
        (
            int(rng.integers(2)),
            float(rng.random()),
            {"tokens": 1e6 + t + 300 * rng.normal(), "plan": "ab"[rng.integers(2)]},
            f"u{rng.integers(4)}",
        )
        for t in range(n)
    ]


class Dense:
    """One regression for each arm, with every user as a column."""

    def __init__(self, arms: ContextualArms, told: list[Any], levels: dict[str, int]) -> None:
        self.places, self.told = arms._places, told
        self.users = sorted({user for *_, user in told})
        self.texts = sorted("ab", key=lambda text: self.places.known["plan", text])
        t = {group: float(TAUS[level]) for group, level in levels.items()}
        self.variances = np.array(
            [t["arms"], *[t["features"], t["pairs"]] * 3, *[t["users"]] * len(self.users)]
        )
        self.rewards = np.array([reward for _, reward, *_ in told])
        self.average = (0.5 + self.rewards.sum()) / (1.0 + len(told))
        self.arm_of = np.array([arm for arm, *_ in told])
        self.x = np.array([self.columns(context, user) for *_, context, user in told])

    def columns(self, context: dict[str, Any], user: str) -> list[float]:
        x = (context["tokens"] - self.places.origin[1]) / self.places.unit[1]
        a, b = (float(context["plan"] == text) for text in self.texts)
        return [1, x, x * x, a, a * x, b, b * x, *(float(user == u) for u in self.users)]

    def solved(self, arm: int) -> tuple[np.ndarray, np.ndarray]:
        """Return weights and covariance."""
        x = self.x[self.arm_of == arm]
        inverse = np.linalg.inv(np.diag(1.0 / self.variances) + x.T @ x)
        b = x.T @ self.rewards[self.arm_of == arm]
        b[0] += self.average / self.variances[0]
        return inverse @ b, inverse

    def log_density(self) -> float:
        """Return that of all rewards, whose marginal distribution is Student's t."""
        same = self.arm_of[:, None] == self.arm_of
        spread = np.eye(len(self.x)) + same * ((self.x * self.variances) @ self.x.T)
        center = np.full(len(self.x), self.average)
        rewards = multivariate_t(center, spread * SCALE / SHAPE, df=round(2.0 * SHAPE))
        return float(rewards.logpdf(self.rewards))


def test_posterior_and_evidence_are_those_of_one_regression_with_every_user_as_a_column():
    """Also after the origin of a number has moved many times."""
    arms, told = arms_of(2), requests(60)
    for request in told:
        arms.tell(*request)
    numbers = np.array([c["tokens"] for *_, c, _ in told])
    assert arms._places.origin[1] == pytest.approx(numbers.mean(), abs=0.1 * numbers.std())
    assert arms._places.unit[1] == pytest.approx(numbers.std(), rel=0.1)
    constants = []
    for levels in (LEVELS, {**LEVELS, "users": 6, "pairs": 4}):
        dense, fit = Dense(arms, told, levels), arms._fit(levels)
        context: dict[str, Any] = {"tokens": 1e6, "plan": "a"}
        z: np.ndarray = np.array(dense.columns(context, "u1"))
        inverse = np.asarray(np.linalg.inv(fit.precision), dtype=np.float64)
        x, row = arms._places.encode(context), arms._users["u1"]
        means, sds = arms._moments(fit, inverse, x, row)
        for arm in range(2):
            weights, covariance = dense.solved(arm)
            assert fit.weights[arm] == pytest.approx(weights[:7], abs=1e-6)
            assert means[arm] == pytest.approx(z @ weights, abs=1e-6)
            sd = SHARPNESS * math.sqrt(fit.variance * (z @ covariance @ z))
            assert sds[arm] == pytest.approx(sd, rel=1e-6)
        steps = sum((level - contextual.START[group]) ** 2 for group, level in levels.items())
        evidence = fit.log_evidence + contextual.STEP_COST * steps
        constants.append(dense.log_density() - evidence)
    assert constants[0] == pytest.approx(constants[1])


def test_a_state_goes_on_as_if_it_had_never_been_saved():
    arms, told = arms_of(2), requests(80)
    while arms.n < 40 or not arms.is_fitted:
        arms.tell(*told[arms.n])
    later = told[arms.n :]
    state = json.loads(json.dumps(arms.to_json()))
    again = ContextualArms.from_json(state, [math.nan, math.nan, 0.9], [1.0, 1.0, 5.0])
    for request in later:
        arms.tell(*request)
        again.tell(*request)
    contexts: list[tuple[dict[str, Any], str]] = [
        ({"tokens": 1e6, "plan": "b"}, "u2"),
        ({}, "new"),
    ]
    for context, user in contexts:
        expected, posterior = arms.posterior(context, user), again.posterior(context, user)
        assert posterior.probabilities == pytest.approx(expected.probabilities)
        assert posterior.of([0, 1]).means == pytest.approx(expected.means)
        assert posterior.of([0, 1]).sds == pytest.approx(expected.sds)
        assert posterior.means[:, 2] == pytest.approx(0.9), "the arm without rewards"
    with pytest.raises(ValueError, match="version 3"):
        ContextualArms.from_json({"version": 1}, [0.5], [1.0])


def regret(arms: ContextualArms, n: int, seed: int, *, exclusive: bool) -> float:
    """Return the regret of n requests with four bits, of which two matter if ``exclusive``."""
    rng, total = np.random.default_rng(seed), 0.0
    for _ in range(n):
        bits = rng.integers(2, size=4)
        context = {f"b{j}": bool(bit) for j, bit in enumerate(bits)}
        good = int(bits[0] ^ bits[1]) if exclusive else 1
        arm = int(rng.choice(2, p=arms.posterior(context).propensities))
        total += 0.4 * (arm != good)
        arms.tell(arm, float(rng.random() < (0.7 if arm == good else 0.3)), context)
    return total


@pytest.mark.statistical
def test_an_exclusive_or_is_found_and_pairs_go_where_they_say_nothing():
    arms = arms_of(2)
    assert regret(arms, 600, 0, exclusive=True) < 40.0, "by chance 120"
    assert all(fit.kept.size == 11 for fit, _ in arms._fits), "with pairs"
    arms = arms_of(2)
    assert regret(arms, 600, 0, exclusive=False) < 20.0
    with_pairs = [fit.kept.size == 11 for fit, _ in arms._fits]
    assert arms._probabilities @ with_pairs < 0.1


@pytest.mark.statistical
def test_users_learn_from_each_other_and_differ_when_they_show_it():
    rng, arms = np.random.default_rng(5), arms_of(1)
    for _ in range(40):
        for user in range(10):
            arms.tell(0, float(rng.random() < (0.2 if user == 0 else 0.8)), {}, f"user {user}")

    def mean(user: str) -> float:
        return float(arms.posterior({}, user).mean_sd[0][0])

    assert mean("without a reward") == pytest.approx(0.74, abs=0.08)
    assert mean("user 0") < 0.4
    assert mean("user 3") > 0.7


def test_a_new_feature_or_user_changes_nothing_and_a_missing_number_is_the_average():
    arms = arms_of(2)
    for request in requests(50):
        arms.tell(*request)
    known = {"tokens": arms._places.origin[1], "plan": "a"}
    expected = arms.posterior(known, "u1").mean_sd
    for context in ({**known, "other": 3.0}, {**known, "word": "x"}, {"plan": "a"}):
        assert arms.posterior(context, "u1").mean_sd[0] == pytest.approx(expected[0])
    assert arms.posterior(known, "new").means == pytest.approx(arms.posterior(known).means)


def test_the_prior_mean_is_that_of_the_average_request():
    arms = ContextualArms([0.2, 0.9], [4.0, 4.0])
    means, _ = arms.posterior({"x": 1.0}).mean_sd
    assert means == pytest.approx([0.2, 0.9])
    with pytest.raises(ValueError, match="positive prior weight"):
        ContextualArms([0.5], [0.0])


def test_values_users_and_places_have_bounds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(features, "MOST_VALUES", 3)
    monkeypatch.setattr(contextual, "MOST_USERS", 2)
    monkeypatch.setattr(features, "MOST_PLACES", 5)
    monkeypatch.setattr(features, "MOST_PAIRS", 1)
    arms = arms_of(1)
    for number, word in enumerate("abcd"):
        arms.tell(0, 1.0, {"word": word, "n": 1.0, "m": number}, f"u{number}")
    places = arms._places
    assert list(places.known) == [("word", "a"), ("n", None), ("m", None), ("word", "b")]
    assert places.rest == {"word": 5}
    arms.tell(0, 1.0, {"beyond": 1.0})
    assert ("beyond", None) not in places.known
    assert places.encode({"word": "c"}).tolist() == places.encode({"word": "never"}).tolist()
    assert np.count_nonzero(places.right) == 1
    assert sorted(arms._users) == ["u2", "u3"]
    assert arms._sums.user_n[:, :2].sum() == 2.0
    assert arms.n == 5, "the average keeps what a user taught"


def test_numbers_of_any_size_are_taken():
    arms = arms_of(2)
    for number in (1.0, 2.0, 1e300, 10**400, -3.0, 0.0) * 5:
        arms.tell(0, 1.0, {"x": number, "y": 1.0})
    assert np.all(np.isfinite(arms.posterior({"x": 5e200}).propensities))


@pytest.mark.parametrize("first", [5e-324, 1e-310, 1e-30, 1e-8, 1e30])
def test_a_first_number_of_another_size_than_the_rest_breaks_nothing(first: float):
    rng = np.random.default_rng(0)
    arms = arms_of(2)
    for number in range(60):
        x, y = (first, -first) if number == 0 else map(float, rng.normal(size=2) * 1e9)
        shares = arms.posterior({"x": x, "y": y}, "u").propensities
        assert np.all(shares >= 0.0)
        assert shares.sum() == pytest.approx(1.0)
        arms.tell(number % 2, float(rng.random()), {"x": x, "y": y}, "u")
    assert np.all(np.isfinite(arms.posterior({"x": 1e300, "y": 0.0}, "u").propensities))


def test_what_is_no_feature_is_refused():
    with pytest.raises(ValueError, match=r"context\.x must be finite"):
        request_features({"x": float("nan")})
    with pytest.raises(ValueError, match=r"context\.x must be a number, text or boolean"):
        request_features({"x": [1]})
    assert request_features({"a": None, "b": True}) == {"a": None, "b": True}
