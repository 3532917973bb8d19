"""Records of adapters, their statuses, checks and training rounds.

An adapter is *registered* as a candidate with the ratings it was trained on. It becomes stale
permanently when one of those ratings is edited, withdrawn or forgotten, or its parent becomes
stale, because it then learned from ratings that are no longer valid.
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
"""Status → statuses that may follow it."""
USED: Final[tuple[AdapterStatus, ...]] = (
    "candidate", "undecided", "active", "inactive", "rejected",
)  # fmt: skip
"""Statuses of adapters whose ratings count as used; ratings of other adapters train again."""

MarkKind = Literal["rating", "comparison"]
RoundStatus = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedMark:
    """A rating or comparison that an adapter was trained on."""

    kind: MarkKind
    interaction_id: str
    """The rated answer, or the first of two compared answers by id."""
    user_id: str
    """Rater."""
    seq: int
    """Number of the event in its table; a later event makes the adapter stale."""
    other_id: str = ""
    """The second of two compared answers by id; empty for a rating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRecord:
    """One registered adapter."""

    version: str
    """``ROLE-NNNN``, never reused."""
    role: str
    base_model: str
    parent: str | None
    """Version from which training started. ``None`` means the base model."""
    objective: str
    """E.g. ``qrpo``."""
    status: AdapterStatus
    reason: str | None
    """Why it has this status. ``None`` if the status has not changed since registration."""
    folder_sha256: str
    """Hash of its two files at registration."""
    n_rows: int
    """Number of ratings it was trained on, without its parent's."""
    is_removed: bool
    """Whether its files were removed because they contain learning from a forgotten text."""
    created_us: int
    decided_us: int
    """Time of its status."""

    @property
    def since(self) -> str:
        """Time of its status, in words."""
        return f"{datetime.fromtimestamp(self.decided_us / 1e6, UTC):%Y-%m-%d %H:%M} UTC"

    @property
    def status_words(self) -> str:
        """Its status in a sentence."""
        status, reason = self.status.replace("_", " "), self.reason or "registered"
        return f"{self.version} is {status} since {self.since}: {reason}"

    @property
    def origin_words(self) -> str:
        """Its training data and parent, in a sentence."""
        return (
            f"role {self.role}, model {self.base_model}, {self.objective} on {self.n_rows:,} ratings, "
            f"from {self.parent or 'the base model'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCheck:
    """Verdict on one condition for activating an adapter."""

    name: str
    passed: bool
    value: float | None
    """Measured value. ``None`` without a measurement; the check is then not passed."""
    low: float | None
    """Lower end of the value's interval. ``None`` if it has none."""
    high: float | None
    threshold: float | None
    """Bound of the value. ``None`` if the condition has no number."""
    unit: str
    words: str
    """The verdict in a sentence."""
    n_more: int | None = None
    """Number of further ratings that would settle it. ``None`` if unknown or not needed."""

    @property
    def measured(self) -> str | None:
        """The value with its interval and unit. ``None`` without a measurement."""
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
    """Resulting adapter. ``None`` if there is none."""
    started_us: int
    ended_us: int | None
    """``None`` if it is running or was killed."""
    n_rows: int
    settings: Mapping[str, Json]
    metrics: Mapping[str, Json]
    """Statistics of the training, e.g. its last loss."""
    reason: str | None
    """Why it failed or was interrupted."""


def answering_words(version: str | None, role: str, *, again: bool = False) -> str:
    """Return which adapter answers now, in a sentence.

    Args:
        version: Version of the adapter; ``None`` means the base model.
        role: Role for which it answers.
        again: Whether it was restored after answering earlier.
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
    """Check that an adapter met every condition.

    Args:
        version: Version of the adapter.
        checks: Its latest verdicts.

    Raises:
        AdapterRefusedError: a condition is not met, or there are no verdicts.
    """
    failed = [check.words for check in checks if not check.passed]
    if failed or not checks:
        reasons = "; ".join(failed) or "none is recorded"
        raise AdapterRefusedError(
            f"adapter {version} must pass every check before it is activated, but {reasons}. "
            "Train a new one, or measure it again."
        )
