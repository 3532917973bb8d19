"""From metrics to one reward: nothing broken ever becomes a number."""

import math

import pytest
from hypothesis import given, strategies as st
from pydantic import TypeAdapter

from convergence_core.config import MetricConfig
from convergence_core.objective import RewardModel
from tests.support.single_metrics import metric

FINITE = st.floats(allow_nan=False, allow_infinity=False)


def model(**metrics: dict[str, object]) -> RewardModel:
    return RewardModel(
        {
            name: TypeAdapter[MetricConfig](MetricConfig).validate_python(
                {"type": "function", "direction": "higher", **settings}
            )
            for name, settings in metrics.items()
        }
    )


def test_the_reward_is_the_weighted_mean():
    scored = model(a={"weight": 3}, b={"weight": 1}).score({"a": 1.0, "b": 0.5})
    assert scored.reward == pytest.approx(0.875)
    assert scored.reason is None
    assert scored.fault is None


def test_lower_is_better_turns_the_metric_round():
    assert model(a={"direction": "lower"}).score({"a": 0.25}).reward == 0.75


@pytest.mark.parametrize(
    ("value", "reward"), [(200, 1.0), (100, 1.0), (5000, 0.0), (9000, 0.0), (2600, 0.5)]
)
def test_a_scale_is_linear_and_clamped(value, reward):
    latency = model(latency_ms={"type": "latency_ms", "scale": {"good": 200.0, "bad": 5000.0}})
    assert latency.score({"latency_ms": value}).reward == pytest.approx(reward)


@pytest.mark.parametrize("value", [1.5, -0.1, 42.0])
def test_a_metric_outside_0_and_1_needs_a_scale(value):
    scored = model(a={}).score({"a": value})
    assert scored.reward is None
    assert scored.fault == "evaluator"
    assert scored.reason is not None
    assert "`scale:" in scored.reason
    assert "evaluation.metrics.a" in scored.reason


@pytest.mark.parametrize(
    ("value", "reward"), [(1.0000000000000002, 1.0), (-1e-17, 0.0), (1 + 1e-9, 1.0)]
)
def test_a_value_outside_by_rounding_counts_as_the_bound(value, reward):
    assert model(a={}).score({"a": value}).reward == reward
    assert model(a={"direction": "lower"}).score({"a": value}).reward == 1.0 - reward
    assert model(a={}).parts({"a": value}) == {"a": reward}


def test_a_bound_missed_by_rounding_holds():
    rules = model(a={"min": 1.0}, b={"weight": 0, "max": 0.3})
    assert rules.score({"a": 0.9999999999999999, "b": 0.1 + 0.2}).reward == pytest.approx(1.0)
    assert rules.breaks({"a": 0.9999999999999999, "b": 0.1 + 0.2}) is False
    broken = rules.score({"a": 0.99999999, "b": 0.1})
    assert broken.reward == 0.0
    assert broken.reason == "constraint a >= 1 (was 0.99999999)"


@pytest.mark.parametrize("value", [1.00000001, -1e-8])
def test_a_message_shows_the_digits_by_which_a_value_lies_outside(value):
    reason = model(a={}).score({"a": value}).reason
    assert reason is not None
    assert reason.startswith(f"metric a is {value!r}, outside [0, 1]")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("weight", [0, 1])
def test_nan_and_infinity_are_missing_never_0_and_never_1(value, weight):
    scored = model(a={"weight": weight, "max": 0.5}, b={}).score({"a": value, "b": 1.0})
    assert scored.reward is None
    assert scored.fault == "evaluator"
    assert scored.reason is not None
    assert "not a finite number" in scored.reason


@pytest.mark.parametrize("metrics", [{"a": None, "b": 1.0}, {"b": 1.0}])
def test_an_unknown_weighted_metric_leaves_the_reward_unknown(metrics):
    scored = model(a={}, b={}).score(metrics)
    assert scored.reward is None
    assert scored.reason == "metric a is unknown"


def test_an_unknown_cost_leaves_no_reward_and_says_how_to_make_it_known():
    scored = model(a={}, cost_usd={"type": "cost_usd"}).score({"a": 1.0})
    assert (scored.reward, scored.fault) == (None, "evaluator")
    assert scored.reason is not None
    assert "`prices`" in scored.reason
    assert "`weight: 0`" in scored.reason
    shown = model(a={}, cost_usd={"type": "cost_usd", "weight": 0}).score({"a": 1.0})
    assert shown.reward == 1.0


def test_a_metric_that_does_not_apply_to_a_case_has_no_share():
    rewards = model(a={"weight": 3}, b={"weight": 1})
    assert rewards.score({"b": 0.5}, {"a"}).reward == 0.5
    scored = rewards.score({}, {"a", "b"})
    assert (scored.reward, scored.fault) == (None, "evaluator")


@pytest.mark.parametrize(
    ("bounds", "value", "reason"),
    [
        ({"max": 500.0}, 501.0, "constraint latency_ms <= 500"),
        ({"min": 10.0}, 9.0, "constraint latency_ms >= 10"),
    ],
)
def test_a_broken_constraint_is_the_candidates_fault_and_worth_0(bounds, value, reason):
    rules = model(latency_ms={"type": "latency_ms", "weight": 0, **bounds}, a={})
    scored = rules.score({"latency_ms": value, "a": 1.0})
    assert scored.reward == 0.0
    assert scored.fault == "candidate"
    assert scored.reason is not None
    assert scored.reason.startswith(reason)
    edge = bounds.get("max", bounds.get("min"))
    assert rules.score({"latency_ms": edge, "a": 1.0}).reward == 1.0


@given(
    st.dictionaries(st.sampled_from("abc"), st.none() | st.floats() | FINITE),
    st.tuples(FINITE, FINITE).filter(lambda pair: pair[0] != pair[1]),
)
def test_a_reward_lies_in_0_and_1_or_has_a_reason(metrics, scale):
    good, bad = scale
    rules = RewardModel(
        {
            "a": metric(scale={"good": good, "bad": bad}),
            "b": metric(weight=0.3, min=-1),
            "c": metric(weight=0, max=1e6),
        }
    )
    scored = rules.score(metrics)
    if scored.reward is None:
        assert scored.reason
        assert scored.fault == "evaluator"
    else:
        assert 0 <= scored.reward <= 1
