"""Conditions of activation: each refuses what breaks it, and what was not measured is not passed."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convergence_core.feedback.activation_gate import (
    CONDITIONS,
    GateMeasures,
    failed_words,
    gate_checks,
    lacks_power,
)
from convergence_core.feedback.offline_reward import offline_reward
from convergence_core.judges.report import Figure
from convergence_core.result.number_text import distinguish

GOOD = GateMeasures(
    n_held_out=40,
    weights_problem="",
    kl_nats=Figure(value=1.3, low=1.1, high=1.6),
    well_formed=Figure(value=0.97),
    reward_difference=Figure(value=0.2, low=0.05, high=0.35),
    reward_rests_on="80 rated answers to 40 prompts (effectively 50)",
    n_new_flags=0,
    n_repairs=8,
    n_repairs_kept=7,
    repairs_rest_on="9 prompts of 11 have a rater",
    has_server_answered=True,
)


def failed(measures: GateMeasures) -> list[str]:
    checks = gate_checks(measures)
    assert [one.name for one in checks] == list(CONDITIONS)
    return [one.name for one in checks if not one.passed]


def words(measures: GateMeasures, name: str) -> str:
    (found,) = (one.words for one in gate_checks(measures) if one.name == name)
    return found


def test_a_candidate_that_meets_every_condition_passes():
    checks = gate_checks(GOOD)
    assert failed(GOOD) == []
    assert failed_words(checks) is None
    by_name = {one.name: one for one in checks}
    kl = by_name["kl"]
    assert (kl.value, kl.low, kl.high, kl.threshold, kl.unit) == (
        1.3, 1.1, 1.6, 1.5, "nats per response",
    )  # fmt: skip
    assert [one.words for one in checks] == [
        "weights passed: the model must load the weights, all of them finite; it has.",
        "held_out passed: enough held-out prompts must be measured; 40 prompts, at least 20.",
        "kl passed: the answers must stay close to the incumbent's by the estimate k3; 1.3 [95 % interval 1.1 to 1.6] nats "
        "per response, at most 1.5.",
        "well_formed passed: the answers must be whole and readable; 0.97 share, at least 0.95.",
        "reward passed: the held-out reward must be above the incumbent's; the difference is 0.2 [95 % "
        "interval 0.05 to 0.35], and its lower end must exceed 0; it rests on 80 rated answers to 40 "
        "prompts (effectively 50).",
        "safety passed: no answer may be newly flagged; 0 new flags, at most 0, by "
        "built-in rules, which are a floor.",
        "repairs passed: repaired answers must stay repaired; 7 of 8 repeated answers are right, at least "
        "0.875 of them; 9 prompts of 11 have a rater.",
        "server passed: the server must have answered with it; it has.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("weights", {"weights_problem": "3 values are NaN or infinite"}),
        ("held_out", {"n_held_out": 19}),
        ("kl", {"kl_nats": Figure(value=1.51)}),
        ("well_formed", {"well_formed": Figure(value=0.949)}),
        ("reward", {"reward_difference": Figure(value=0.2, low=0.0, high=0.4)}),
        ("safety", {"n_new_flags": 1}),
        ("repairs", {"n_repairs_kept": 6}),
        ("server", {"has_server_answered": False}),
    ],
)
def test_what_breaks_a_condition_is_refused_by_it_alone(name: str, changes: dict[str, Any]):
    measures = replace(GOOD, **changes)
    assert failed(measures) == [name]
    said = failed_words(gate_checks(measures))
    assert said is not None
    assert said.startswith(f"{name} not passed: {CONDITIONS[name]}; ")


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("kl", {"kl_nats": None}),
        ("kl", {"kl_nats": Figure(value=float("nan"))}),
        ("kl", {"kl_nats": Figure(value=float("-inf"))}),
        ("well_formed", {"well_formed": None}),
        ("reward", {"reward_difference": None}),
        ("reward", {"reward_difference": Figure(value=0.5)}),
        ("reward", {"reward_difference": Figure(value=0.5, low=0.1, high=float("inf"))}),
        ("safety", {"n_new_flags": None}),
        ("repairs", {"n_repairs": None}),
        ("server", {"has_server_answered": None}),
    ],
)
def test_what_was_not_measured_is_not_passed(name: str, changes: dict[str, Any]):
    measures = replace(GOOD, **changes)
    assert failed(measures) == [name]
    assert "not measured" in words(measures, name)


def test_nothing_measured_passes_nothing():
    assert failed(GateMeasures(n_held_out=0, weights_problem="broken")) == list(CONDITIONS)


def test_where_nothing_was_repaired_the_verdict_says_why():
    first = replace(GOOD, n_repairs=0, n_repairs_kept=0, repairs_rest_on="no active adapter")
    assert failed(first) == []
    assert words(first, "repairs").endswith("; there are none: no active adapter.")


def test_the_verdict_on_safety_says_what_flags_rest_on():
    told = words(replace(GOOD, n_new_flags=2), "safety")
    assert told.endswith("; 2 new flags, at most 0, by built-in rules, which are a floor.")


@pytest.mark.parametrize(
    ("kl", "form", "refused_by"),
    [
        (124, 0.002, ["kl", "well_formed"]),
        (67, 0.30, ["kl", "well_formed"]),
        (3.65, 0.913, ["kl", "well_formed"]),
        (2.38, 0.851, ["kl", "well_formed"]),
        (24, 0.64, ["kl", "well_formed"]),
        (1.30, 0.969, []),
        (0.98, 0.908, ["well_formed"]),
        (0.54, 0.974, []),
    ],
)
def test_policies_that_collapsed_are_refused_by_distance_and_form(
    kl: float, form: float, refused_by: list[str]
):
    """Distance and form as they were measured of eight training runs, five of which collapsed."""
    measures = replace(GOOD, kl_nats=Figure(value=kl), well_formed=Figure(value=form))
    assert failed(measures) == refused_by


def test_of_candidates_that_are_no_better_at_most_one_in_twenty_passes():
    rng, n_passed = np.random.default_rng(9), 0
    for _ in range(200):
        rewards, ratio = (rng.integers(1, 6, size=80) - 3) / 2, rng.normal(scale=0.5, size=80)
        one = offline_reward(rewards, ratio, np.zeros(80))
        assert one is not None
        found = Figure(value=one.difference, low=one.low, high=one.high)
        n_passed += not failed(replace(GOOD, reward_difference=found, reward_rests_on=one.words))
    assert n_passed <= 10, n_passed


def test_a_number_beside_its_limit_is_told_from_it():
    over = next(
        one
        for one in gate_checks(replace(GOOD, kl_nats=Figure(value=1.50003)))
        if one.name == "kl"
    )
    assert "1.50003 nats per response, at most 1.5" in over.words
    assert over.measured == "1.50003 nats per response"
    assert distinguish(1.5, 1.5) == "1.5"
    assert distinguish(1.4996, 1.5) == "1.4996"
    assert distinguish(math.nextafter(1.5, 2), 1.5) == "1.5000000000000002"
    assert distinguish(0.12345, None) == "0.123"


def test_where_only_power_is_missing_the_verdict_says_how_many_more_ratings_would_settle_it():
    wide = replace(GOOD, reward_difference=Figure(value=0.2, low=-0.2, high=0.6), n_ratings=100)
    assert "about 300 more ratings would settle it" in words(wide, "reward")
    assert lacks_power(gate_checks(wide))
    worse = replace(wide, reward_difference=Figure(value=-0.1, low=-0.5, high=0.3))
    assert "more ratings" not in words(worse, "reward")
    for other in (
        worse,
        replace(wide, n_new_flags=1),
        GOOD,
        GateMeasures(n_held_out=0, weights_problem="broken"),
    ):
        assert not lacks_power(gate_checks(other))
