"""Records that travel between packages: frozen, slotted, keyword-only.

``docs/glossary.md`` defines the terms. Times are microseconds since the Unix epoch and money is US
dollars. ``None`` means unknown, never zero.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from itertools import takewhile
from typing import Any, Final, Literal, Self, TypeAlias, get_args

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

ParamValue: TypeAlias = bool | int | float | str
"""Value of one parameter; for a text parameter, the text of the chosen variant."""

Params: TypeAlias = Mapping[str, ParamValue]
"""Active parameters of a candidate by name; read-only by agreement."""

Role = Literal["search", "fresh", "holdout"]
"""Purpose of an evaluation. Samplers read ``search`` only; the report shows the others separately.
"""

Origin = Literal["default", "sample", "mutation", "crossover", "elite", "rlp", "sao", "written"]

FaultName = Literal["candidate", "infrastructure", "evaluator"]
"""Cause of a failed evaluation. ``candidate`` means reward 0; for the others the reward is
missing."""

Category: TypeAlias = Literal["none", "error", "empty", "format", "partial", "wrong"]
"""What is wrong with an answer."""
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
Status = Literal["ok", "error", "timeout", "skipped"]
"""Outcome of an evaluation; ``skipped`` means that a budget or a stop prevented it."""


SHORT_ID = 6
"""Number of digits of a candidate's id in its name."""
DEFAULT_NAME = "default"


def fields_of(record: object, *names: str) -> dict[str, Any]:
    """Return some fields of a record by name.

    >>> fields_of(Usage(prompt_tokens=3), "prompt_tokens")
    {'prompt_tokens': 3}
    """
    return {name: getattr(record, name) for name in names}


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: sorted keys, no white space, no NaN.

    Raises:
        ValueError: A float is NaN or infinite.
        TypeError: The value contains a type that JSON lacks.

    Example:
        >>> canonical_json({"b": 1, "a": [True, None]})
        '{"a":[true,null],"b":1}'
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a string's UTF-8 bytes as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def same_value(a: object, b: object) -> bool:
    """Return whether two values are equal: numbers by value, booleans distinct from numbers."""
    return isinstance(a, bool) == isinstance(b, bool) and a == b


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Point of the search space."""

    candidate_id: str
    """First 16 hexadecimal digits of the SHA-256 of the canonical active parameters."""
    params: Params
    origin: Origin = "sample"
    parent_ids: tuple[str, ...] = ()


def n_shared_words(words: Sequence[str], others: Sequence[str]) -> int:
    """Return the number of words that two texts share at their start."""
    pairs = zip(words, others, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def short_id(candidate_id: str) -> str:
    """Return the prefix of a candidate's id that people and commands use."""
    return candidate_id[:SHORT_ID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Test case: an input and the expected answer."""

    case_id: str
    input: Json
    expected: Json = None
    weight: float = 1.0
    """Relative weight of the case in a candidate's mean reward; positive."""
    tags: tuple[str, ...] = ()
    group: str | None = None
    """Group of similar cases, such as paraphrases of one question. Its cases are held out together
    and count once in statistical tests. ``None`` means that the case is independent."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """(candidate, test case, repeat): the unit of evaluation, journal and payment."""

    candidate_id: str
    case_id: str
    repeat: int = 0
    role: Role = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A candidate and its cells of one generation, in the order of evaluation."""

    candidate: Candidate
    cells: tuple[Cell, ...]
    label: str = ""
    """Display name: the parameters that vary, e.g. ``m=small t=0.7``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts of one attempt as the provider reported them; ``None`` means not reported."""

    prompt_tokens: int | None = None
    """Tokens of the whole prompt, including cache reads and writes."""
    cached_tokens: int | None = None
    """Prompt tokens that the provider read from its cache."""
    cache_write_tokens: int | None = None
    """Prompt tokens that the provider wrote to its cache, which have a separate price."""
    completion_tokens: int | None = None
    """Tokens of the whole answer, including reasoning."""
    reasoning_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """Tokens of prompt and answer; ``None`` if neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    def __add__(self, other: "Usage") -> "Usage":
        """Add two usages; a count known to only one of them is the sum."""

        def added(name: str) -> int | None:
            known = [n for usage in (self, other) if (n := getattr(usage, name)) is not None]
            return sum(known) if known else None

        return Usage(**{field.name: added(field.name) for field in fields(self)})

    def to_json(self) -> dict[str, Json]:
        """Return the known counts by name."""
        return {name: number for name, number in asdict(self).items() if number is not None}

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Rebuild a usage from the value of ``to_json``."""
        return cls(**value) if isinstance(value, dict) else cls()  # type: ignore[arg-type]  # as written


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True, kw_only=True)
class RateInfo:
    """Rate limits that an answer's headers report; ``None`` means not reported."""

    retry_after_s: float | None = None
    """Seconds to wait before the next request, as the server demands."""
    remaining_requests: int | None = None
    """Remaining requests under all windows."""
    remaining_tokens: int | None = None
    """Remaining tokens under all windows."""
    reset_s: float | None = None
    """Seconds until the limit is fully restored; if a limit is exhausted, until all limits are."""

    @property
    def is_used_up(self) -> bool:
        """Whether a limit is exhausted."""
        return self.remaining_requests == 0 or self.remaining_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Answer of a target to one request."""

    value: Json
    """Result: the mapped field of an HTTP body, a function's result, or the content of a chat
    message."""
    latency_ms: float
    """Milliseconds from sending the request to the last byte, without queueing."""
    cost_usd: float | None = None
    """Cost in US dollars, reported by the target or computed from ``usage``; ``None`` if
    unknown."""
    price_version: str | None = None
    """Date of the price table behind ``cost_usd``; ``None`` if the target reported the cost."""
    usage: Usage = NO_USAGE
    model: str | None = None
    """Model name in the provider's answer."""
    provider: str | None = None
    first_token_ms: float | None = None
    """Milliseconds from sending the request to the first chunk; ``None`` without streaming."""
    dropped: tuple[str, ...] = ()
    """Request fields that the target omitted, each as ``name: reason``."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Metric name → additional number measured by the target."""
    finish_reason: str | None = None
    """Reason why a chat model stopped; ``None`` if not reported or not a chat model."""
    recording_url: str | None = None
    """URL of a recording of the session; ``None`` without a recording."""
    thinking: str | None = None
    """The model's reasoning before the answer, never scored; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Outcome of one cell."""

    eval_id: str
    cell: Cell
    generation: int | None
    """``None`` in the final test."""
    status: Status
    fault: FaultName | None = None
    error_type: str | None = None
    error: str | None = None
    """Redacted message and original traceback; ``None`` on success. With status ``ok``, the
    constraint that the answer violates, or why a metric without a weight cannot read it."""
    reward: float | None = None
    """Reward in [0, 1]; 0 if the candidate caused the failure; ``None`` if missing."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    latency_ms: float | None = None
    first_token_ms: float | None = None
    cost_usd: float | None = None
    """US dollars paid by this evaluation; 0 if another paid, ``None`` if unknown."""
    price_usd: float | None = None
    """US dollars that the call cost, even if another evaluation paid; ``None`` if unknown, or if
    it failed at no cost."""
    usage: Usage = NO_USAGE
    dropped: tuple[str, ...] = ()
    """Request fields that the target omitted, each as ``name: reason``."""
    recording_url: str | None = None
    model: str | None = None
    provider: str | None = None
    call_key: str | None = None
    cached: bool = False
    attempt: int = 1
    """Number of the attempt that counted, from 1."""
    started_us: int | None = None
    ended_us: int | None = None
    request_text: str | None = None
    """Redacted canonical request, for the table ``payloads``."""
    response_text: str | None = None
    """Redacted answer as canonical JSON, for the table ``payloads``."""
    thinking_text: str | None = None
    """Redacted reasoning before the answer, for the table ``payloads``; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Mean reward, or mean difference of rewards, with its interval."""

    mean: float
    """Mean in [0, 1]; a difference in [-1, 1]."""
    low: float
    high: float
    level: float = 0.95
    """Coverage probability of the interval."""
    n_cases: int
    """Number of distinct test cases."""
    n_groups: int | None = None
    """Number of independent units if cases are grouped. ``None`` if each case is independent, or
    for a posterior interval, which ignores groups."""


PROBABLY = 0.5
"""Minimum probability of feasibility at which a candidate counts as feasible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """Estimates of a ranked candidate, from the cells of the search."""

    candidate_id: str
    mean: float
    """Posterior mean reward, in [0, 1]."""
    low: float
    high: float
    cautious: float
    """Rank criterion: lower end of the posterior's 68 % interval, before the correction of leaders for
    selection bias, minus the price of prompt length; clipped, so that values can tie."""
    n_cells: int
    """Number of rewards."""
    n_cases: int
    """Number of distinct test cases."""
    feasible: float | None = None
    """Posterior probability of satisfying the hard constraints, the first rank criterion; ``None``
    if no cell violated one."""

    @property
    def is_feasible(self) -> bool:
        """Whether it probably satisfies the hard constraints."""
        return self.feasible is None or self.feasible >= PROBABLY


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Candidate and its evaluations in one generation, in the order of its cells."""

    candidate: Candidate
    evaluations: tuple[Evaluation, ...]


def eval_id_of(run_id: str, generation: int | None, cell: Cell) -> str:
    """Return an evaluation's id: 24 hexadecimal digits that depend only on the arguments."""
    number = -1 if generation is None else generation
    parts = [run_id, number, cell.candidate_id, cell.case_id, cell.repeat, cell.role]
    return sha256_hex(canonical_json(parts))[:24]
