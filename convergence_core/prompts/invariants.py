"""Invariants of written texts: what none may break before it is evaluated.

==================  ==================================================================
``empty``           nothing but white space
``unprintable``     control characters or lone surrogates
``too_long``        more characters than ``prompts.max_length``
``placeholders``    another set of placeholders in braces than its parents have together
``schema``          a JSON object or tool of its parent is missing, broken or changed
``shots``           demonstrations that the engine has not drawn, or more than allowed
``held_out``        a run of 8 words, or a whole text, of a held-out case
``duplicate``       a near duplicate of a text that the parameter has
==================  ==================================================================

What search cases or the given texts hold too is no knowledge of a held-out case.
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
"""Words in a row that no text may share with a held-out case."""
WHOLE: Final = 20
"""Characters from which on the whole text of a held-out case counts."""
N_SHINGLE: Final = 5
"""Words of the shingles by which long texts are compared."""
ALIKE: Final = 0.97
"""Jaccard similarity of shingles from which on two texts are one."""

_PLACEHOLDER: Final = re.compile(
    r"\{\{?(?:input[.\[][^{}]+|[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*)\}\}?"
)
_ALLOWED_CONTROL: Final = frozenset("\n\t\r")
_FENCED: Final = re.compile(r"```(?:json)?\n(.*?)\n```", re.DOTALL)


def placeholders_of(text: str) -> tuple[str, ...]:
    """Return the different placeholders of a text, sorted."""
    return tuple(sorted(set(_PLACEHOLDER.findall(text))))


def kept_placeholders(parents: Iterable[str]) -> tuple[str, ...]:
    """Return the placeholders that a text of these parents has: all that one of them has, sorted."""
    return tuple(
        sorted(
            {placeholder for text in parents for placeholder in placeholders_of(split(text)[0])}
        )
    )


def texts_in(value: Json) -> Iterable[str]:
    """Yield all texts in a JSON value; numbers as written, keys left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)


def held_out_texts(held_out: Iterable[Case], known: Iterable[str]) -> WordRuns:
    """Return runs of words, and whole texts, that no written text may hold.

    Args:
        held_out: cases that the search never sees.
        known: texts of search cases, and those that the user has given.
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
    """What all texts of a run have to keep."""

    held_out: WordRuns
    max_length: int
    max_shots: int

    def violation(
        self, text: str, *, parents: Sequence[str], known: Iterable[str], shots: Sequence[Shot]
    ) -> Violation | None:
        """Return the first invariant that a text breaks; ``None`` if it keeps all.

        Args:
            text: whole, demonstrations included.
            parents: texts that it was written from; none of a text from cases alone.
            known: texts that its parameter has.
            shots: demonstrations that the engine has drawn for it.
        """
        checks = self._checks(text, parents, known, shots)
        return next((name for name, is_broken in checks if is_broken), None)

    def _checks(
        self, text: str, parents: Sequence[str], known: Iterable[str], shots: Sequence[Shot]
    ) -> Iterator[tuple[Violation, bool]]:
        """Yield each invariant, and whether it is broken; the next is looked at if it is not."""
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
    """Whether a text is one of these up to case, punctuation and a word in a hundred.

    Demonstrations count in their order: another order is another text.
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
    """Whether all JSON objects of the parent are there, and its tools have their shape."""
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
    """Return the JSON object or list that a text is; ``None`` if it is none."""
    try:
        value = json.loads(text)
        canonical_json(value)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _same_shape(wanted: Json, value: Json) -> bool:
    """Whether two values differ in the texts of descriptions alone."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        return wanted.keys() == value.keys() and all(
            (key == "description" and isinstance(value[key], str)) or _same_shape(item, value[key])
            for key, item in wanted.items()
        )
    if isinstance(wanted, list) and isinstance(value, list):
        return len(wanted) == len(value) and all(map(_same_shape, wanted, value))
    return type(wanted) is type(value) and wanted == value
