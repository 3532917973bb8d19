"""Test of an adapter on live traffic: its claims, its interval, its coin, its sentence."""

import math
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.feedback.live_test import verdict_of
from convergence_core.feedback.live_test import ALPHA, RatedConversation, claim_of, weigh
from convergence_core.feedback.live_test_records import LiveTest, assigned


def conversations(*given: tuple[bool, float]) -> list[RatedConversation]:
    return [RatedConversation(is_candidate=a, reward=r, n_ratings=1) for a, r in given]


@pytest.mark.slow
def test_what_is_alike_is_seldom_called_better_or_worse_at_any_look():
    claims = [verdict_of(seed, effect=0.0, n_ratings=40)[0] for seed in range(200)]
    assert sum(one is not None for one in claims) <= 0.05 * len(claims)


@pytest.mark.parametrize(("effect", "claim"), [(2.0, "better"), (-2.0, "worse")])
def test_a_large_difference_is_found_soon_and_on_its_own_side(effect: float, claim: str):
    found = [verdict_of(seed, effect=effect, n_ratings=150, base=3.0) for seed in range(20)]
    assert sum(one == claim for one, _ in found) >= 18
    assert not {"better", "worse"} - {claim} & {one for one, _ in found}


def test_the_interval_holds_what_is_true_and_agrees_with_the_claim():
    n_missed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sides = rng.random(150) < 0.3
        rewards = np.where(rng.random(150) < np.where(sides, 0.8, 0.5), 1.0, -1.0)
        given = conversations(*zip(sides.tolist(), rewards.tolist(), strict=True))
        found, claim = weigh(TEST, given), claim_of(given, TEST.share)
        assert None not in (found.low, found.high, found.difference)
        n_missed += not found.low <= 0.6 <= found.high  # type: ignore[operator]
        assert (claim == "better") == (found.low > 0.0)  # type: ignore[operator]
        assert (claim == "worse") == (found.high < 0.0)  # type: ignore[operator]
        assert found.low < found.difference < found.high  # type: ignore[operator]
        assert found.n_conversations == 150
    assert n_missed <= ALPHA * 100


@pytest.mark.parametrize("n", [0, 1])
def test_nothing_is_known_of_one_side_alone(n: int):
    given = conversations((True, 1.0))[:n]
    found = weigh(replace(TEST, share=0.5), given)
    assert (claim_of(given, 0.5), found.difference, found.n_ratings) == (None, None, n)
    assert found.low <= -1.9  # type: ignore[operator]
    assert found.high >= 1.9  # type: ignore[operator]


@pytest.mark.parametrize("reward", [1.01, -2.0, math.nan, math.inf])
def test_what_is_no_reward_is_refused(reward: float):
    with pytest.raises(ValueError, match="each reward must be"):
        claim_of(conversations((True, reward)), 0.5)


@pytest.mark.parametrize("share", [0.0, 1.0, math.nan])
def test_a_share_lies_between_none_and_all(share: float):
    with pytest.raises(ValueError, match="share must lie in"):
        claim_of(conversations((True, 1.0)), share)


TEST = LiveTest(
    test_id="t", version="assistant-0002", control="assistant-0001", role="assistant", share=0.3,
    max_ratings=200, status="running",
)  # fmt: skip


def test_a_conversation_has_one_coin_and_all_coins_have_the_share():
    coins = [assigned(TEST, "ann", str(k)) for k in range(4_000)]
    assert coins == [assigned(TEST, "ann", str(k)) for k in range(4_000)]
    share = sum(one.is_candidate for one in coins) / len(coins)
    assert share == pytest.approx(0.3, abs=4 * math.sqrt(0.21 / 4_000))
    assert len({one.unit for one in coins}) == 4_000
    others = [assigned(replace(TEST, test_id="u"), "ann", str(k)) for k in range(4_000)]
    alike = sum(a.is_candidate == b.is_candidate for a, b in zip(coins, others, strict=True))
    assert alike / 4_000 == pytest.approx(0.58, abs=0.04)
    assert assigned(TEST, "bob", "1").unit != coins[1].unit


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "assistant-0002 is tried against assistant-0001 on 30 % of the conversations: no known "
             "difference on 0 ratings of 0 conversations, undecided, and it ends at 200 ratings"),
        ({"status": "better"}, "assistant-0002 is better than assistant-0001: mean reward +0.31 [0.05, 0.57] "
                               "on 84 ratings of 60 conversations; it answers all"),
        ({"status": "worse", "control": None}, "assistant-0002 is worse than the base model: mean reward +0.31 "
         "[0.05, 0.57] on 84 ratings of 60 conversations; it was rolled back"),
        ({"status": "undecided"}, "whether assistant-0002 is better than assistant-0001 is undecided: mean "
         "reward +0.31 [0.05, 0.57] on 84 ratings of 60 conversations; it answers all, because its ratings were higher"),
        ({"status": "undecided", "difference": -0.31}, "whether assistant-0002 is better than assistant-0001 is "
         "undecided: mean reward -0.31 [0.05, 0.57] on 84 ratings of 60 conversations; assistant-0001 answers again, "
         "because its ratings were not higher"),
        ({"status": "ended", "reason": "x became stale"}, "the test of assistant-0002 against assistant-0001 ended "
         "undecided, for x became stale: mean reward +0.31 [0.05, 0.57] on 84 ratings of 60 conversations"),
    ],
)  # fmt: skip
def test_one_sentence_tells_the_state(changes: dict[str, object], words: str):
    counted = {
        "difference": 0.31, "low": 0.05, "high": 0.57, "n_ratings": 84, "n_conversations": 60
    }  # fmt: skip
    given = {**(counted if changes else {}), **changes}
    assert replace(TEST, **given).words == words  # type: ignore[arg-type]
