"""Records of blinded tests of adapters on live traffic, and their sentence."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from convergence_core.result.number_text import plural, whole_percent

LiveStatus = Literal["running", "better", "worse", "undecided", "ended"]
BY: Final = "live_test"
"""Actor in the records when a worse adapter is rolled back."""
_COIN_SIDES: Final = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTest:
    """One blinded test of a role's new adapter against its predecessor."""

    test_id: str
    """Id of the test, which also seeds its coins."""
    version: str
    """Version of the new adapter."""
    control: str | None
    """Version of the predecessor. ``None`` means the base model."""
    role: str
    share: float
    max_ratings: int
    status: LiveStatus
    n_ratings: int = 0
    n_conversations: int = 0
    """Number of rated conversations. This and the following fields are current, or final after the
    test.
    """
    difference: float | None = None
    """Mean reward of the new adapter's conversations less that of the others, in [-2, 2]; ``None``
    if a side has none.
    """
    low: float | None = None
    """Lower end of its 95 % confidence sequence, which is valid at any look."""
    high: float | None = None
    reason: str | None = None
    """Why it ended without a verdict; ``None`` if it did not."""
    started_us: int = 0
    ended_us: int | None = None

    @property
    def keeps_adapter(self) -> bool:
        """Whether the new adapter answers everything after the test, by its ratings."""
        is_higher = self.difference is not None and self.difference > 0.0
        return self.status == "better" or (self.status == "undecided" and is_higher)

    @property
    def words(self) -> str:
        """The test's state in a sentence without a full stop."""
        control = self.control or "the base model"
        on = f"on {plural(self.n_ratings, 'rating')} of {plural(self.n_conversations, 'conversation')}"
        if self.difference is not None and self.low is not None and self.high is not None:
            words = f"mean reward {self.difference:+.2f} [{self.low:.2f}, {self.high:.2f}] {on}"
        else:
            words = f"no known difference {on}"
        if self.status in ("better", "worse"):
            end = "it answers all" if self.status == "better" else "it was rolled back"
            return f"{self.version} is {self.status} than {control}: {words}; {end}"
        if self.status == "undecided":
            end = (
                "it answers all, because its ratings were higher"
                if self.keeps_adapter
                else f"{control} answers again, because its ratings were not higher"
            )
            return f"whether {self.version} is better than {control} is undecided: {words}; {end}"
        if self.status == "ended":
            return (
                f"the test of {self.version} against {control} ended undecided, for {self.reason}: "
                f"{words}"
            )
        return (
            f"{self.version} is tried against {control} on {whole_percent(self.share)} of the conversations: {words}, "
            f"undecided, and it ends at {plural(self.max_ratings, 'rating')}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAnswer:
    """Assignment of an answer in a test."""

    test_id: str
    unit: str
    """Hash of the test, the user, and the conversation's id or first message."""
    is_candidate: bool
    """Whether the new adapter should answer."""


def assigned(test: LiveTest, user_id: str, conversation: str) -> LiveAnswer:
    """Return the assignment of a conversation's answers; one coin decides for all of them.

    Args:
        test: Running test.
        user_id: User of the conversation.
        conversation: Id of the conversation, or the user's first message without one.
    """
    text = "\0".join((test.test_id, user_id, conversation))
    unit = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    is_candidate = int(unit[:16], 16) < test.share * _COIN_SIDES
    return LiveAnswer(test_id=test.test_id, unit=unit, is_candidate=is_candidate)
