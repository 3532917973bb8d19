"""Records of adapters, their statuses, checks and training rounds.

An adapter is *registered* as a candidate with the marks it was trained on. It is stale, for good, as soon
as one of those marks is edited, taken back or forgotten, or its parent is stale: what it has learned then
is not what people say.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from convergence_core.errors import AdapterRefusedError
from convergence_core.records import Json
from convergence_core.result.number_text import distinguish

AdapterStatus = Literal[
    "candidate", "undecided", "active", "inactive", "rolled_back", "rejected", "stale"
]
STATUSES: Final[Mapping[AdapterStatus, str]] = {
    "candidate": "waits for its checks",
    "undecided": "needs only more ratings to prove its gain; it can be tried on live traffic",
    "active": "answers for its role",
    "inactive": "another one took its place; it can be activated again",
    "rolled_back": "was rolled back; it can be activated again",
    "rejected": "failed a check, or its files were changed",
    "stale": "a rating it was trained on was changed; it never answers again",
}
"""Status → its meaning."""
_NEXT: Final[Mapping[AdapterStatus, tuple[AdapterStatus, ...]]] = {
    "candidate": ("undecided", "active", "rejected", "stale"),
    "undecided": ("active", "rejected", "stale"),
    "active": ("inactive", "rolled_back", "rejected", "stale"),
    "inactive": ("active", "rejected", "stale"),
    "rolled_back": ("active", "rejected", "stale"),
    "rejected": ("stale",),
    "stale": (),
}
"""Status → those that may follow it."""
USED: Final[tuple[AdapterStatus, ...]] = (
    "candidate", "undecided", "active", "inactive", "rejected",
)  # fmt: skip
"""Statuses of adapters whose marks count as used; those of others are open for training again."""

MarkKind = Literal["rating", "comparison"]
RoundStatus = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedMark:
    """One rating or comparison that an adapter was trained on."""

    kind: MarkKind
    interaction_id: str
    """The rated answer; of two compared ones the first by name."""
    user_id: str
    """Who rated."""
    seq: int
    """Number of the event in its table; another one that counts later makes the adapter stale."""
    other_id: str = ""
    """The second of two compared answers by name; empty: a rating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecord:
    """One registered adapter."""

    version: str
    """``ROLE-NNNN``, never used twice."""
    role: str
    base_model: str
    parent: str | None
    """Version it was trained on from. ``None`` means the base model."""
    objective: str
    """E.g. ``qrpo``."""
    status: AdapterStatus
    reason: str | None
    """Why it has this status. ``None`` if it is as it was registered."""
    folder_sha256: str
    """Of its two files, as registered."""
    n_rows: int
    """Marks it was trained on itself; its parent's are not counted."""
    is_removed: bool
    """Whether its files were removed, for they hold what was learned from a forgotten text."""
    created_us: int
    decided_us: int
    """When it got its status."""

    @property
    def since(self) -> str:
        """When it got its status, in words."""
        return f"{datetime.fromtimestamp(self.decided_us / 1e6, UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def status_words(self) -> str:
        """Its status in a sentence."""
        status, reason = self.status.replace("_", " "), self.reason or "registered"
        return f"{self.version} is {status} since {self.since}: {reason}"

    @property
    def origin_words(self) -> str:
        """What it was trained on and from, in a sentence."""
        return (
            f"role {self.role}, model {self.base_model}, {self.objective} on {self.n_rows:,} ratings, "
            f"from {self.parent or 'the base model'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """Verdict of one condition that an adapter must meet before it is activated."""

    name: str
    passed: bool
    value: float | None
    """What was measured. ``None`` if nothing was; then it is not passed."""
    low: float | None
    """Ends of the value's interval. ``None`` if it has none."""
    high: float | None
    threshold: float | None
    """What the value is held against. ``None`` if the condition has no number."""
    unit: str
    words: str
    """The verdict in a sentence."""
    n_more: int | None = None
    """Further ratings that would settle it. ``None`` if not known, or not needed."""

    @property
    def measured(self) -> str | None:
        """The value with its interval and unit. ``None`` if nothing was measured."""
        if self.value is None:
            return None
        text = distinguish(self.value, self.threshold)
        if self.low is not None and self.high is not None:
            text += f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{text} {self.unit}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRoundRecord:
    """One training round."""

    round_id: str
    role: str
    objective: str
    status: RoundStatus
    version: str | None
    """Adapter that came of it. ``None`` if none has."""
    started_us: int
    ended_us: int | None
    """``None`` if it runs, or was killed."""
    n_rows: int
    settings: Mapping[str, Json]
    metrics: Mapping[str, Json]
    """Numbers of the training, e.g. its last loss."""
    reason: str | None
    """Why it failed or was interrupted."""


def answering_words(version: str | None, role: str, *, again: bool = False) -> str:
    """Return which adapter answers now, in a sentence.

    Args:
        version: of the adapter; ``None`` means the base model.
        role: that it answers for.
        again: whether it did so before, and was brought back.
    """
    return f"{version or 'The base model'} answers for the role {role}{' again' * again}."


def check_change(version: str, before: AdapterStatus, after: AdapterStatus) -> None:
    """Make sure that a status may follow another.

    Raises:
        AdapterRefusedError: it may not.
    """
    if after not in _NEXT[before]:
        allowed = ", ".join(_NEXT[before]) or "nothing else"
        raise AdapterRefusedError(
            f"adapter {version} is {before} ({STATUSES[before]}) and can become {allowed}, but not "
            f"{after}. Choose another version, or train a new one."
        )


def check_gate(version: str, checks: tuple[GateCheck, ...]) -> None:
    """Make sure that an adapter met every condition.

    Args:
        version: of the adapter.
        checks: its last verdicts.

    Raises:
        AdapterRefusedError: one is not met, or there are none.
    """
    failed = [check.words for check in checks if not check.passed]
    if failed or not checks:
        reasons = "; ".join(failed) or "none is recorded"
        raise AdapterRefusedError(
            f"adapter {version} must pass every check before it is activated, but {reasons}. "
            "Train a new one, or measure it again."
        )
