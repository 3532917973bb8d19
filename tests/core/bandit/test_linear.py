"""Contextual arms and the vectors of their requests."""

from typing import Any

import numpy as np
import pytest

from convergence_core.bandit import Encoder, LinearArms, LinearLearner

ENCODER = Encoder(n_features=16)


def test_linear_arms_are_the_ridge_regression_of_their_rewards():
    rng = np.random.default_rng(0)
    learner = LinearLearner(LinearArms.begin([0.3, 0.6], 4, prior_weights=[2.0, 5.0]))
    xs = np.hstack((np.ones((30, 1)), rng.normal(size=(30, 3))))
    rewards = rng.random(30)
    for x, reward in zip(xs, rewards, strict=True):
        learner.tell(1, x, float(reward))
    arms = learner.arms
    precision = np.diag([5.0, 1.0, 1.0, 1.0]) + xs.T @ xs
    expected = np.linalg.solve(precision, np.array([3.0, 0, 0, 0]) + xs.T @ rewards)
    assert arms.weights[1] == pytest.approx(expected)
    assert arms.covariance[1] == pytest.approx(np.linalg.inv(precision))
    assert arms.weights[0] == pytest.approx([0.3, 0, 0, 0]), "the other arm has learned nothing"
    means, sds = arms.moments(xs[0])
    assert means[1] == pytest.approx(xs[0] @ expected)
    assert sds[1] == pytest.approx(np.sqrt(0.25 * xs[0] @ np.linalg.inv(precision) @ xs[0]))


def test_the_prior_mean_counts_without_context():
    means, _ = LinearArms.begin([0.2, 0.9], 3, prior_weights=4.0).moments(np.array([1.0, 0, 0]))
    assert means == pytest.approx([0.2, 0.9])


@pytest.mark.statistical
def test_context_is_learned_where_a_plain_bandit_cannot_tell_the_arms_apart():
    """Arm 0 suits German requests, arm 1 English ones; their averages are equal."""
    rng = np.random.default_rng(4)
    learner = LinearLearner(LinearArms.begin([0.5, 0.5], 16))
    good = 0
    for t in range(3_000):
        language = "de" if rng.random() < 0.5 else "en"
        x = ENCODER.encode({"language": language})
        means, sds = learner.arms.moments(x)
        arm = int(rng.normal(means, sds).argmax())
        right = (language == "de") == (arm == 0)
        good += right and t >= 2_000
        learner.tell(arm, x, float(rng.random() < (0.8 if right else 0.4)))
    assert good > 900, f"{good} of the last 1,000 requests got the right arm"


@pytest.mark.statistical
def test_users_learn_from_each_other_and_differ_when_they_show_it():
    encoder = Encoder(n_features=64)
    rng = np.random.default_rng(5)
    learner = LinearLearner(LinearArms.begin([0.5], 64))
    for _ in range(40):
        for user in range(10):
            x = encoder.encode({}, user_id=f"user {user}")
            learner.tell(0, x, float(rng.random() < (0.2 if user == 0 else 0.8)))

    def believed(user: str) -> float:
        return float(learner.arms.moments(encoder.encode({}, user_id=user))[0][0])

    assert believed("nobody has seen this one") == pytest.approx(0.72, abs=0.12)
    assert believed("user 0") < 0.45
    assert believed("user 3") > 0.65


def test_vectors_are_the_same_in_every_process():
    x = ENCODER.encode({"length": 0.5, "language": "de"}, user_id="u1", agent_type="chat")
    assert x[0] == 1.0
    assert np.flatnonzero(x).tolist() == [0, 2, 5, 8, 13] or np.count_nonzero(x) <= 5
    again = Encoder(n_features=16).encode(
        {"language": "de", "length": 0.5}, user_id="u1", agent_type="chat"
    )
    assert again.tolist() == x.tolist(), "order of features does not matter"


def test_vectors_are_those_that_stored_posteriors_were_learned_with():
    """Another place of a name would be told by the weights of a stranger."""

    def places(**of: Any) -> dict[int, float]:
        x = ENCODER.encode(of.pop("context", {}), **of)
        return {int(i): float(x[i]) for i in np.flatnonzero(x) if i}

    assert places(context={"length": 0.5}) == {4: 0.5}
    assert places(context={"language": "de"}) == {14: -1.0}
    assert places(user_id="u1") == {12: 0.5}
    assert places(agent_type="chat") == {7: -0.5}


def test_signs_of_hashed_categories_cancel_in_the_mean():
    total = sum(ENCODER.encode({"word": f"w{i}"})[1:] for i in range(4_000))
    # Each coordinate sums about 4000 / 15 signs: standard deviation 16; five of them.
    assert np.abs(total).max() < 5 * np.sqrt(4_000 / 15)


def test_missing_values_are_left_out_and_booleans_are_categories():
    assert ENCODER.encode({"a": None}).tolist() == ENCODER.encode({}).tolist()
    assert ENCODER.encode({"a": True}).tolist() != ENCODER.encode({"a": False}).tolist()
    assert ENCODER.encode({"a": True}).tolist() == ENCODER.encode({"a": True}).tolist()


def test_what_is_no_feature_is_refused():
    with pytest.raises(ValueError, match=r"context\.x must be finite"):
        ENCODER.encode({"x": float("nan")})
    with pytest.raises(TypeError, match=r"context\.x must be a number, text or boolean"):
        ENCODER.encode({"x": [1]})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="n_features"):
        Encoder(n_features=1)
    with pytest.raises(ValueError, match="prior means"):
        LinearArms.begin([0.5], 3, prior_weights=0.0)
