"""Section on answers: inputs, expected and actual answers, prompts as a diff."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from convergence_core.records import Params, Role
from convergence_core.result import CaseAnswer, CaseAnswers, RunResult, number_text
from convergence_core.result.number_text import milliseconds
from tasks.report import phrases
from tasks.report.blocks import Block, Heading, Inline, Paragraph, Span, TextDiff, Texts, marked
from tasks.report.phrases import best_label, clean, short

ARROW = " \N{RIGHTWARDS ARROW} "
LONG_TEXT = 60
"""Characters beyond which a parameter's value also appears as a diff."""
MOST_GAINED = 3
"""Maximum cases with the largest gains in a report."""
_MOST_TOKENS = 4_000
"""Maximum total tokens of two strings that are compared."""
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")

ROLE_NOUNS: Mapping[Role, str] = {
    "holdout": "held-out case",
    "fresh": "search case, repeated",
    "search": "search case",
}


def sides(result: RunResult) -> tuple[str, str]:
    """Return the labels of the two sides of a run's answers."""
    return "default", best_label(result)


def report_blocks(result: RunResult) -> list[Block]:
    """Return a report's section on answers and prompts; empty without a winner."""
    if result.best is None or not result.answers:
        return []
    blocks: list[Block] = [Heading("Answers")]
    defaults = None if result.best_is_baseline else result.baseline
    lost = "did worst" if defaults is None else "lost or gained most against the defaults"
    text = (
        f"The cases on which the {best_label(result)} configuration {lost}, held-out cases first. "
    )
    text += f"All cases: `convergence show {result.label}`."
    blocks.append(Paragraph(marked(text), "note"))
    blocks += answer_blocks(result.answers, *sides(result))
    if defaults is not None:
        blocks += prompt_blocks(defaults.params, result.best.params, *sides(result))
    return blocks


def answer_blocks(cases: Sequence[CaseAnswers], first: str, second: str) -> list[Block]:
    """Return cases with both answers, differing parts marked.

    Args:
        cases: cases in display order.
        first: label of the first side, e.g. ``default``.
        second: label of the second side.
    """
    blocks: list[Block] = []
    if any(case.first is not None and case.second is not None for case in cases):
        text = f"Of two values (a{ARROW}b), the first is of the {first}"
        blocks.append(Paragraph((f"{text} configuration, the second of the {second}.",), "note"))
    if all(_is_without_text(case) for case in cases):
        blocks.append(
            Paragraph(
                marked(
                    "Only scores are shown: the configuration keeps no texts (`storage.keep_text: false`)."
                )
            )
        )
    for case in cases:
        blocks += [
            Heading(_title(case, first, second), level=3),
            Texts(tuple(_rows(case, first, second))),
        ]
    return blocks


def _is_without_text(case: CaseAnswers) -> bool:
    answers = [answer for answer in (case.first, case.second) if answer is not None]
    return case.input is None and not any(answer.text or answer.error for answer in answers)


def _title(case: CaseAnswers, first: str, second: str) -> str:
    name = f"{short(case.name or case.case_id)} ({ROLE_NOUNS[case.role]})"
    if case.first is None or case.second is None:
        absent = first if case.first is None else second
        return f"{name}: {absent} not run"
    gap = case.gap
    if gap is None:
        return f"{name}: no reward to compare"
    if round(abs(gap), 3) == 0:
        return f"{name}: same reward"
    return f"{name}: {second} {'better' if gap > 0 else 'worse'} by {abs(gap):.3f}"


def _rows(case: CaseAnswers, first: str, second: str) -> Iterator[tuple[str, tuple[Inline, ...]]]:
    if case.input is not None:
        yield "input", (clean(case.input),)
    if case.expected is not None:
        yield "expected", (clean(case.expected),)
    left: tuple[Inline, ...] = ()
    right: tuple[Inline, ...] = ()
    if case.first and case.second and case.first.text is not None and case.second.text is not None:
        left, right = differences(case.first.text, case.second.text)
    for name, answer, pieces in ((first, case.first, left), (second, case.second, right)):
        if answer is None:
            continue
        shown = pieces or ((clean(answer.text),) if answer.text is not None else ())
        if shown:
            more = f" (first of {answer.n_repeats})" if answer.n_repeats > 1 else ""
            yield f"{name}{more}", shown
        yield from _remarks(name, answer)
    yield "scores", ("; ".join(_scores(case)),)


def _remarks(name: str, answer: CaseAnswer) -> Iterator[tuple[str, tuple[Inline, ...]]]:
    """Yield the remarks on an answer: thinking, recording, error, reasons."""
    if answer.thinking is not None:
        yield f"thinking of {name}", (clean(answer.thinking),)
    if answer.recording_url is not None:
        yield f"recording of {name}", (Span(answer.recording_url, "link"),)
    if answer.error is not None:
        yield f"{name} failed", (clean(answer.error),)
    for reason in answer.reasons:
        yield f"judge of {name}", (clean(reason),)


def _scores(case: CaseAnswers) -> Iterator[str]:
    pair = [answer for answer in (case.first, case.second) if answer is not None]
    yield f"reward {_values(number_text.reward(answer.reward) for answer in pair)}"
    for name in sorted({name for answer in pair for name in answer.metrics}):
        values = _values(phrases.number(answer.metrics.get(name)) for answer in pair)
        yield f"{clean(name)} {values}"
    is_metric = any("latency_ms" in answer.metrics for answer in pair)
    if any(answer.latency_ms is not None for answer in pair) and not is_metric:
        yield f"latency {_values(milliseconds(answer.latency_ms) for answer in pair)}"
    if any(answer.cost_usd is not None for answer in pair):
        yield f"price {_values(number_text.usd(answer.cost_usd) for answer in pair)}"


def _values(texts: Iterable[str]) -> str:
    """Return both values, or one if they are equal."""
    return ARROW.join(dict.fromkeys(texts))


# -- differences of strings


def differences(a: str, b: str) -> tuple[tuple[Inline, ...], tuple[Inline, ...]]:
    """Return two strings as pieces, with parts missing in the other marked."""
    a, b = clean(a), clean(b)
    left, right = _TOKEN.findall(a), _TOKEN.findall(b)
    if a == b or len(left) + len(right) > _MOST_TOKENS:
        return (a,), (b,)
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    pieces: tuple[list[Inline], list[Inline]] = ([], [])
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        for side, text in zip(
            pieces, ("".join(left[i:i_end]), "".join(right[j:j_end])), strict=True
        ):
            if text:
                side.append(text if kind == "equal" or text.isspace() else Span(text, "marked"))
    return tuple(pieces[0]), tuple(pieces[1])


def long_texts(a: Params, b: Params) -> list[str]:
    """Return the parameters whose values differ and are too long for a table."""
    return [
        name
        for name in dict.fromkeys([*b, *a])
        for pair in [(a.get(name), b.get(name))]
        if pair[0] != pair[1]
        and any(
            isinstance(answer, str) and (len(answer) > LONG_TEXT or "\n" in answer)
            for answer in pair
        )
    ]


def prompt_blocks(a: Params, b: Params, first: str, second: str) -> list[Block]:
    """Return unified diffs of the long values that differ between two configurations."""
    blocks: list[Block] = []
    for name in long_texts(a, b):
        old, new = (clean(str(params.get(name, ""))).splitlines() for params in (a, b))
        lines = difflib.unified_diff(old, new, first, second, lineterm="")
        blocks += [
            Heading(f"{short(name)}: from {first} to {second}", level=3),
            TextDiff(tuple(lines)),
        ]
    return blocks
