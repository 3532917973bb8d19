"""Rules: the operators' edits without a model.

They see only sentences and lines, and work without a configured model (``prompts.writer: rules``).
They write boilerplate, from which a search finds what helps; a model writes better prompts.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.judges.texts import word_set
from convergence_core.prompts.invariants import placeholders_of
from convergence_core.prompts.operators import Shown, WriterAnswer

_SENTENCES: Final = re.compile(r"(?<=[.!?])[ \t]+|\n+")
_FILLER: Final = re.compile(
    r"\b(?:please|kindly|very|really|carefully|basically|actually|just)\b[ ]?", re.IGNORECASE
)
_FALLBACKS: Final = (
    "If the input is unclear or empty, give your single best answer and do not ask back.",
    "If no answer fits, answer with the closest allowed value.",
    "If you are unsure, answer all the same, in the required form.",
)
_CONSTRAINTS: Final = (
    "Answer with the result only.",
    "Do not explain your answer.",
    "Write exactly one line.",
    "Do not add punctuation or quotation marks.",
    "Use lower case only.",
)
_EXPANSIONS: Final = (
    "Consider the whole input before you answer.",
    "Every word of the input may matter; weigh all of them.",
    "A good answer is correct, complete and in the required form.",
)
_STEPS: Final = (
    "Work in steps: 1. Read the input. 2. Decide what is asked. 3. Write only the final answer.",
    "First find the part of the input that decides. Then derive the answer. Write the answer alone.",
)


def written_by_rules(
    operator: OperatorName,
    prompts: Sequence[str],
    shown: Sequence[Shown],
    rng: np.random.Generator,
    labels: Sequence[str] = (),
) -> WriterAnswer:
    """Return a prompt by rules.

    Args:
        operator: Edit to make.
        prompts: The parent; two for ``merge``, none for ``induce``.
        shown: Failures, or cases.
        rng: Random generator.
        labels: All expected answers, if they are few.
    """
    parent = prompts[0].rstrip() if prompts else ""
    diagnosis = ""
    match operator:
        case "try-catch-style":
            text = _with(parent, _FALLBACKS, rng)
        case "context-reduction":
            text = _shorter(parent, rng)
        case "expansion":
            text = _with(parent, _EXPANSIONS, rng)
        case "constraint-addition":
            text = _with(parent, _constraints(shown, labels), rng)
        case "task-decomposition":
            text = _with(parent, _STEPS, rng)
        case "merge":
            text = _merged(parent, prompts[1] if len(prompts) > 1 else "")
        case "induce":
            text = _induced(shown, labels)
        case _:
            diagnosis, rules = _diagnosed(shown, labels)
            text = _with(parent, _lacking(parent, rules) or _constraints(shown, labels), rng)
    return WriterAnswer(text=text, diagnosis=diagnosis)


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _SENTENCES.split(text) if part.strip()]


def _lacking(parent: str, sentences: Sequence[str]) -> list[str]:
    return [sentence for sentence in sentences if sentence not in parent]


def _with(parent: str, sentences: Sequence[str], rng: np.random.Generator) -> str:
    """Return the parent with a sentence that it lacks; unchanged if it has them all."""
    new = _lacking(parent, sentences)
    return f"{parent}\n{new[int(rng.integers(len(new)))]}".strip() if new else parent


def _shorter(parent: str, rng: np.random.Generator) -> str:
    """Return the parent without fillers; if it has none, without one of its sentences."""
    text = _FILLER.sub("", parent).strip()
    sentences = _sentences(text)
    # A sentence with a placeholder carries the input.
    spare = [i for i, sentence in enumerate(sentences) if "{" not in sentence]
    if text == parent.strip() and len(sentences) > 1 and spare:
        left_out = spare[int(rng.integers(len(spare)))]
        text = "\n".join(sentence for i, sentence in enumerate(sentences) if i != left_out)
    return text


def _merged(first: str, second: str) -> str:
    """Return the first prompt with the sentences of the second that it lacks.

    Sentences with braces are added only if the first lacks their placeholder.
    """
    known = {frozenset(word_set(sentence)) for sentence in _sentences(first)}
    held = set(placeholders_of(first))
    new = [
        s
        for s in _sentences(second)
        if word_set(s) not in known and ("{" not in s or set(placeholders_of(s)) - held)
    ]
    return "\n".join([first, *new]).strip()


def _listed(labels: Sequence[str]) -> str:
    """Return labels as a list in words."""
    return " or ".join([", ".join(labels[:-1]), labels[-1]] if len(labels) > 1 else labels)


def _constraints(shown: Sequence[Shown], labels: Sequence[str]) -> list[str]:
    named = [f"Answer with one of: {_listed(labels)}."] if labels else []
    if _is_short(shown):
        named.append("Answer in one word.")
    return [*named, *_CONSTRAINTS]


def _is_short(shown: Sequence[Shown]) -> bool:
    expected = [failure.expected for failure in shown if failure.expected]
    return bool(expected) and all(len(text.split()) == 1 for text in expected)


def _diagnosed(shown: Sequence[Shown], labels: Sequence[str]) -> tuple[str, list[str]]:
    """Return the common fault of the failures, and rules that fix it."""
    pairs = [(failure.answer or "", failure.expected or "") for failure in shown]
    one_of = [f"Answer with one of: {_listed(labels)}."] if labels else []
    if pairs and all(len(answer) > 2 * len(wanted) for answer, wanted in pairs):
        rules = ["Answer with the result only.", "Answer as briefly as possible."]
        if _is_short(shown):
            rules.append("Answer in one word.")
        return "Answers are longer than what is expected.", [*rules, *one_of]
    if labels and any(
        failure.answer is not None and failure.answer.strip() not in labels for failure in shown
    ):
        return "Answers are none of the few expected values.", one_of
    return "Answers differ from what is expected.", [
        *_constraints(shown, labels),
        *_EXPANSIONS,
        *_STEPS,
    ]


def _induced(shown: Sequence[Shown], labels: Sequence[str]) -> str:
    if labels:
        return f"Read the input and classify it. Answer with one of: {_listed(labels)}."
    end = "Answer in one word." if _is_short(shown) else "Answer with the result only."
    return f"Read the input and give the answer that it asks for. {end}"


LIKELY: Final[Mapping[str, tuple[OperatorName, ...]]] = {
    "format": ("constraint-addition", "reflect", "examples"),
    "empty": ("try-catch-style", "constraint-addition"),
    "error": ("constraint-addition", "context-reduction"),
    "wrong": ("reflect", "examples", "expansion", "task-decomposition"),
    "partial": ("reflect", "examples", "expansion"),
}
"""Failure category → operators that are more likely to help, for a small prior bonus."""
