"""Records that travel between rooms: frozen, slotted, keyword-only.

Words are those of ``docs/glossary.md``. Times are microseconds since the Unix epoch, money is
US dollars, ``None`` means unknown and never zero.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, Self, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A value that JSON can carry."""

ParamValue: TypeAlias = bool | int | float | str
"""One parameter's value. A text parameter's value is the *text* of the chosen variant."""

Params: TypeAlias = Mapping[str, ParamValue]
"""Active parameters of a candidate, by name. Read-only by agreement."""

Role = Literal["search", "fresh", "holdout"]
"""Who may see an evaluation: samplers read ``search`` only; the report shows the others apart."""

Origin = Literal["default", "sample", "mutation", "crossover", "elite", "rlp", "sao", "written"]
"""How a candidate came to be."""

FaultName = Literal["candidate", "infrastructure", "evaluator"]
"""Cause of a failed evaluation: ``candidate``: reward 0; the others: the reward is missing."""

Status = Literal["ok", "error", "timeout", "skipped"]
"""How an evaluation ended; ``skipped`` means it was planned and not asked (budget, stop)."""


SHORT_ID = 6
"""Digits of a candidate's id in its name."""
DEFAULT_NAME = "default"
"""Name of the user's defaults."""


def canonical_json(value: object) -> str:
    """Return the one JSON text of a value: sorted keys, no white space, no NaN.

    Raises:
        ValueError: a float is NaN or infinite.
        TypeError: the value is not made of JSON types.
    """
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256_hex(text: str) -> str:
    """Return the SHA-256 of a text's UTF-8 bytes as 64 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One point of the search space."""

    candidate_id: str
    """16 hexadecimal digits of the SHA-256 of the canonical active parameters."""
    params: Params
    origin: Origin = "sample"
    parent_ids: tuple[str, ...] = ()


def short_id(candidate_id: str) -> str:
    """Return the beginning of a candidate's id, by which people and commands name it."""
    return candidate_id[:SHORT_ID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test case: what is asked and what is expected."""

    case_id: str
    input: Json
    expected: Json = None
    weight: float = 1.0
    """Relative weight of the case in a candidate's mean reward; positive."""
    tags: tuple[str, ...] = ()
    group: str | None = None
    """Name of the cases that are alike, such as paraphrases of one question: they are held out
    together, and count as one where chance is judged. ``None``: the case is like no other."""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """(candidate, test case, repeat): the unit that is evaluated, journaled and paid for."""

    candidate_id: str
    case_id: str
    repeat: int = 0
    role: Role = "search"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A candidate and the cells it gets in this generation, in the order they are asked."""

    candidate: Candidate
    cells: tuple[Cell, ...]
    label: str = ""
    """Short name for people: the parameters that vary, e.g. ``m=small t=0.7``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one attempt, as its provider reported them; ``None``: it did not say."""

    prompt_tokens: int | None = None
    """The whole prompt: those read from and written to the provider's cache included."""
    cached_tokens: int | None = None
    """Tokens of the prompt that the provider read from its cache."""
    cache_write_tokens: int | None = None
    """Tokens of the prompt that the provider wrote to its cache, at a price of their own."""
    completion_tokens: int | None = None
    """The whole answer, reasoning included."""
    reasoning_tokens: int | None = None
    """Tokens of the answer spent on reasoning."""

    @property
    def total(self) -> int | None:
        """Tokens of prompt and answer; ``None`` when neither is known."""
        if self.prompt_tokens is None and self.completion_tokens is None:
            return None
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    def __add__(self, other: "Usage") -> "Usage":
        """Return the sums; a number that only one of them knows is the sum."""

        def added(name: str) -> int | None:
            known = [n for one in (self, other) if (n := getattr(one, name)) is not None]
            return sum(known) if known else None

        return Usage(**{field.name: added(field.name) for field in fields(self)})

    def to_json(self) -> dict[str, Json]:
        """Return the known numbers by name."""
        numbers: dict[str, Json] = {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "completion_tokens": self.completion_tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }
        return {name: number for name, number in numbers.items() if number is not None}

    @classmethod
    def from_json(cls, value: Json) -> Self:
        """Rebuild what ``to_json`` wrote."""
        return cls(**value) if isinstance(value, dict) else cls()  # type: ignore[arg-type]  # as written


NO_USAGE = Usage()
"""Nothing was reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateInfo:
    """What the head of an answer says about the endpoint's limits; ``None``: it does not say."""

    retry_after_s: float | None = None
    """A command: nothing may be sent for so long."""
    remaining_requests: int | None = None
    """Requests that are still allowed, over all windows."""
    remaining_tokens: int | None = None
    """Tokens that are still allowed, over all windows."""
    reset_s: float | None = None
    """Until what is used up is there again; where nothing is, until everything is."""

    @property
    def is_used_up(self) -> bool:
        """Whether a limit has nothing left."""
        return self.remaining_requests == 0 or self.remaining_tokens == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a target answered to one request."""

    value: Json
    """The result: the mapped field of an HTTP body, a function's result, a chat's text."""
    latency_ms: float
    """From the moment the request was sent to its last byte; no queueing."""
    cost_usd: float | None = None
    """As the target reported it, or as priced from ``usage``; ``None``: unknown."""
    price_version: str | None = None
    """Date of the price table that ``cost_usd`` comes from; ``None``: the target said it."""
    usage: Usage = NO_USAGE
    model: str | None = None
    """As answered by the provider."""
    provider: str | None = None
    first_token_ms: float | None = None
    """From sending the request to the first piece of the answer; ``None``: not streamed."""
    dropped: tuple[str, ...] = ()
    """Request fields that were left out, each as ``name: reason``."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further numbers the target measured itself, by metric name."""
    finish_reason: str | None = None
    """Why a chat model's answer ended; ``None``: not told, or no chat model."""
    recording_url: str | None = None
    """Where a person can watch how it came about; ``None``: nowhere."""
    thinking: str | None = None
    """The model's thinking before the answer, never scored; ``None``: none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """The outcome of one cell."""

    eval_id: str
    cell: Cell
    generation: int | None
    """``None`` for the re-estimation after the last generation."""
    status: Status
    fault: FaultName | None = None
    error_type: str | None = None
    error: str | None = None
    """Message and original traceback, redacted; ``None`` when all went well."""
    reward: float | None = None
    """In [0, 1]; 0 for the candidate's own fault; ``None``: missing."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    latency_ms: float | None = None
    first_token_ms: float | None = None
    cost_usd: float | None = None
    usage: Usage = NO_USAGE
    dropped: tuple[str, ...] = ()
    """Request fields that were left out, each as ``name: reason``."""
    recording_url: str | None = None
    model: str | None = None
    provider: str | None = None
    call_key: str | None = None
    cached: bool = False
    attempt: int = 1
    """The attempt that counted, from 1."""
    started_us: int | None = None
    ended_us: int | None = None
    request_text: str | None = None
    """The redacted canonical request, for ``payloads``."""
    response_text: str | None = None
    """The redacted answer as canonical JSON, for ``payloads``."""
    thinking_text: str | None = None
    """The redacted thinking before the answer, for ``payloads``; ``None``: none is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A candidate and its evaluations of one generation, in the order of its cells."""

    candidate: Candidate
    evaluations: tuple[Evaluation, ...]


def eval_id_of(run_id: str, generation: int | None, cell: Cell) -> str:
    """Return the evaluation's id: 24 hexadecimal digits, a function of what was asked alone."""
    number = -1 if generation is None else generation
    parts = [run_id, number, cell.candidate_id, cell.case_id, cell.repeat, cell.role]
    return sha256_hex(canonical_json(parts))[:24]
