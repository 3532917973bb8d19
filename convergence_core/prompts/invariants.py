"""Invariants of written prompts, checked before evaluation.

==================  ================================================================== ``empty``
nothing but white space ``unprintable``     control characters or lone surrogates ``too_long``
more characters than ``prompts.max_length`` ``placeholders``    placeholders that differ from those
of all parents together ``schema``          a JSON object or tool of its parent is missing, broken
or changed ``shots``           demonstrations not drawn by the engine, or more than allowed
``held_out``        a run of 8 words, or a whole text, of a held-out case ``duplicate``       a
near duplicate of a known prompt of the parameter ==================
==================================================================

Text that also occurs in search cases or given prompts does not count as held-out.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from convergence_core.judges.texts import WordRuns, fingerprint, normalized, runs_of
from convergence_core.prompts.shots import TAG, Shot, split
from convergence_core.records import Case, Json, canonical_json

Violation: TypeAlias = Literal[
    "empty", "unprintable", "too_long", "placeholders", "schema", "shots", "held_out", "duplicate"
]
N_RUN: Final = 8
"""Consecutive words that no prompt may share with a held-out case."""
WHOLE: Final = 20
"""Minimum characters of a held-out text that counts as a whole."""
N_SHINGLE: Final = 5
"""Words per shingle for comparing long prompts."""
ALIKE: Final = 0.97
"""Jaccard similarity of shingles at or above which two prompts are duplicates."""

_PLACEHOLDER: Final = re.compile(
    r"\{\{?(?:input[.\[][^{}]+|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*)\}\}?"
)
_ALLOWED_CONTROL: Final = frozenset("\n\t\r")
_FENCED: Final = re.compile(r"```(?:json)?\n(.*?)\n```", re.DOTALL)


def placeholders_of(text: str) -> tuple[str, ...]:
    """Return the distinct placeholders of a text, sorted."""
    return tuple(sorted(set(_PLACEHOLDER.findall(text))))


def kept_placeholders(parents: Iterable[str]) -> tuple[str, ...]:
    """Return the placeholders that a child of these parents must have, sorted."""
    return tuple(
        sorted(
            {placeholder for text in parents for placeholder in placeholders_of(split(text)[0])}
        )
    )


def texts_in(value: Json) -> Iterable[str]:
    """Yield all strings in a JSON value, without keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)


def held_out_texts(held_out: Iterable[Case], known: Iterable[str]) -> WordRuns:
    """Return runs of words, and whole texts, that no written prompt may hold.

    Args:
        held_out: Cases that the search never sees.
        known: Texts of search cases, and the user's prompts.
    """
    runs = WordRuns(N_RUN)
    for case in held_out:
        for text in (*texts_in(case.input), *texts_in(case.expected)):
            runs.add(text, whole=len(text.strip()) >= WHOLE)
    for text in known:
        runs.allow(text)
    return runs


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Invariants:
    """Rules for all written prompts of a run."""

    held_out: WordRuns
    max_length: int
    max_shots: int

    def violation(
        self, text: str, *, parents: Sequence[str], known: Iterable[str], shots: Sequence[Shot]
    ) -> Violation | None:
        """Return the first invariant that a prompt breaks; ``None`` if it keeps all.

        Args:
            text: Whole prompt, including demonstrations.
            parents: Its parents; empty if it was written from cases alone.
            known: Prompts of the parameter.
            shots: Demonstrations that the engine drew for it.
        """
        checks = self._checks(text, parents, known, shots)
        return next((name for name, is_broken in checks if is_broken), None)

    def _checks(
        self, text: str, parents: Sequence[str], known: Iterable[str], shots: Sequence[Shot]
    ) -> Iterator[tuple[Violation, bool]]:
        """Yield each invariant and whether it is broken, lazily."""
        instruction, examples = split(text)
        yield "empty", not instruction.strip()
        yield "too_long", len(text) > self.max_length
        yield "unprintable", not _is_printable(text)
        drawn = [*examples] == [*shots] and len(examples) <= self.max_shots
        yield "shots", TAG.search(instruction) is not None or not drawn
        if parents:
            wanted = kept_placeholders(parents)
            yield "placeholders", placeholders_of(instruction) != wanted
            yield "schema", not _keeps_schemas(instruction, split(parents[0])[0])
        yield "held_out", self.held_out.leak_into(text)
        yield "duplicate", is_near_duplicate(text, known)


def _is_printable(text: str) -> bool:
    return all(
        char in _ALLOWED_CONTROL or unicodedata.category(char) not in ("Cc", "Cs") for char in text
    )


def is_near_duplicate(text: str, known: Iterable[str]) -> bool:
    """Return whether a prompt equals a known one except for case, punctuation and few words.

    Demonstrations count in their order: another order makes another prompt.
    """
    instruction, shots = split(text)
    key, shingles = fingerprint(instruction), runs_of(instruction, N_SHINGLE)
    for other in known:
        other_instruction, other_shots = split(other)
        if shots != other_shots:
            continue
        if fingerprint(other_instruction) == key and normalized(instruction):
            return True
        if instruction.strip() == other_instruction.strip():
            return True
        others = runs_of(other_instruction, N_SHINGLE)
        union = len(shingles | others)
        if union and len(shingles & others) / union >= ALIKE:
            return True
    return False


def _keeps_schemas(text: str, parent: str) -> bool:
    """Return whether all JSON objects of the parent remain, and its tools keep their shape."""
    whole = _json(parent)
    if whole is not None:
        return _same_shape(whole, _json(text))
    wanted = [schema for block in _FENCED.findall(parent) if (schema := _json(block)) is not None]
    if not wanted:
        return True
    have = [schema for block in _FENCED.findall(text) if (schema := _json(block)) is not None]
    have_texts = {canonical_json(schema) for schema in have}
    return all(canonical_json(schema) in have_texts for schema in wanted)


def _json(text: str) -> Json:
    """Return the JSON object or list in a text; ``None`` if it is neither."""
    try:
        value = json.loads(text)
        canonical_json(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _same_shape(wanted: Json, value: Json) -> bool:
    """Return whether two values differ only in the strings of descriptions."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(
            (key == "description" and isinstance(value[key], str)) or _same_shape(item, value[key])
            for key, item in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(_same_shape, wanted, value))
    return type(wanted) is type(value) and wanted == value
