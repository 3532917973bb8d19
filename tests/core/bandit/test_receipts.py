"""Receipts of rewards."""

import pytest

from convergence_core.bandit.arms import OpenDecision, Receipt, receive

OPEN = OpenDecision(expires_us=1_000)
DONE = OpenDecision(expires_us=1_000, reward=0.5)
OK = Receipt(status="ok", stored="ok", learns=True)


@pytest.mark.parametrize(
    ("decision", "now_us", "expected"),
    [
        (OPEN, 999, OK),
        (OpenDecision(expires_us=None), 10**18, OK),
        (OPEN, 1_000, Receipt(status="late", stored="late", learns=False)),
        (DONE, 999, Receipt(status="duplicate", stored=None, learns=False)),
        (DONE, 5_000, Receipt(status="duplicate", stored=None, learns=False)),
        (
            OpenDecision(expires_us=1_000, reward=0.4),
            999,
            Receipt(status="conflict", stored="conflict", learns=False),
        ),
        (None, 999, Receipt(status="unknown", stored="orphan", learns=False)),
    ],
)
def test_each_kind_of_reward_has_its_end(
    decision: OpenDecision | None, now_us: int, expected: Receipt
):
    assert receive(0.5, decision, now_us) == expected


@pytest.mark.parametrize("reward", [-0.1, 1.1, float("nan"), float("inf"), float("-inf")])
def test_what_is_no_reward_is_refused_before_anything_else(reward: float):
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        receive(reward, None, 0)
