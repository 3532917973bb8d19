"""Repaired prompts, asked again of a new adapter.

A repair is a prompt whose answer was marked low and that the adapter in service answers rightly, by
its likeliest answer. Training on new marks may undo what earlier ones taught, so that each is asked again of
every new adapter.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convergence_core.errors import CandidateFault
from convergence_core.feedback.objectives import DESIRABLE_FROM, desirability
from convergence_core.feedback.records import HIGHEST, LOWEST, Interaction
from convergence_core.records import Case
from convergence_core.result.number_text import plural
from tasks.inputs.loader import Loaded
from tasks.metrics.comparisons import LIKENESSES, Comparison, comparison, needs_expected
from tasks.training.judged_model import JudgedModel, SampledPrompt, prompt_of
from tasks.training.marks import RoleMarks, prompt_key

MOST_ASKED: Final = 200
"""Prompts that were marked low and are asked: the first by their hash, so always the same."""
RIGHT_FROM: Final = (DESIRABLE_FROM - LOWEST) / (HIGHEST - LOWEST)
"""Lowest rater's mark of a right answer, as a share of the scale."""

Rate = Callable[[str, str], float]
"""(prompt, answer) → its mark as a share of the scale."""
IsRight = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repairs:
    """How many repairs there are, and how many a new adapter keeps."""

    n: int
    """Prompts that were marked low and that the adapter in service answers rightly."""
    n_kept: int
    """Those of them that the new one answers rightly."""
    rest_on: str
    """What said whether an answer is right, and of how many prompts."""


class RightAnswers:
    """What says whether an answer is right: test cases by their metrics, else the rater."""

    def __init__(self, loaded: Loaded, rate: Rate | None) -> None:
        """Prepare.

        Args:
            loaded: the configuration. A case judges where its input is the prompt, it has an expected
                value, and a metric holds the whole answer against that.
            rate: the rater; ``None``: there is none.
        """
        self._rate = rate
        self._comparisons: list[Comparison] = [
            comparison(one, loaded.schemas.get(name))
            for name, one in loaded.configuration.evaluation.metrics.items()
            if needs_expected(one)
            and one.type not in LIKENESSES
            and one.field is one.expected_field is None
        ]
        self._cases = {
            text: one
            for one in loaded.cases
            if one.expected is not None and (text := _asked(one)) is not None
        }

    def of(self, prompt: str) -> IsRight | None:
        """Return what says whether an answer to a prompt is right; ``None``: nothing does."""
        case, rate = self._cases.get(prompt), self._rate
        if case is not None and self._comparisons:
            return lambda answer: all(_is_met(one, answer, case) for one in self._comparisons)
        if rate is not None:
            return lambda answer: rate(prompt, answer) >= RIGHT_FROM
        return None


def ask_repairs(
    model: JudgedModel,
    marks: RoleMarks,
    right: RightAnswers,
    *,
    new: Path,
    old: Path | None,
    old_version: str | None,
) -> Repairs:
    """Ask a new adapter again what the one in service has repaired.

    Args:
        model: that answers.
        marks: of their role.
        right: says which answers are right.
        new: folder of the new adapter.
        old: folder of the one in service; ``None``: the base model, which repaired nothing.
        old_version: of the one in service; marks of its own answers are not of an earlier version.

    Raises:
        ModelProcessError: the model could not answer.
    """
    if old is None:
        return Repairs(
            n=0, n_kept=0, rest_on="no adapter is in service that could have repaired one"
        )
    low = _marked_low(marks, old_version)
    judged = [(one, is_right) for one in low if (is_right := right.of(_prompt(one))) is not None]
    asked = judged[:MOST_ASKED]
    repaired = _right(model, asked, old)
    kept = _right(model, repaired, new)
    cut = (
        f", of which the first {MOST_ASKED:,} by their hash were asked"
        if len(judged) > MOST_ASKED
        else ""
    )
    rest_on = (
        f"{len(judged):,} of {plural(len(low), 'prompt')} marked low under an earlier version have a test "
        f"case or a rater that says what is right{cut}"
    )
    return Repairs(n=len(repaired), n_kept=len(kept), rest_on=rest_on)


def _right(
    model: JudgedModel, asked: list[tuple[Interaction, IsRight]], adapter: Path
) -> list[tuple[Interaction, IsRight]]:
    """Return those that an adapter's likeliest answer is right to."""
    prompts = [_greedy(one) for one, _ in asked]
    answers = model.answers(prompts, adapter, n=1, seed=0)
    return [pair for pair, answer in zip(asked, answers, strict=True) if pair[1](answer)]


def _marked_low(marks: RoleMarks, version: str | None) -> list[Interaction]:
    """Return an answer to each prompt that was marked low under another version, by its hash."""
    found: dict[str, Interaction] = {}
    for one in (*marks.answers, *marks.held_out):
        if desirability(one.rating) is False and one.interaction.adapter_version != version:
            found.setdefault(prompt_key(one.interaction), one.interaction)
    return [found[key] for key in sorted(found)]


def _greedy(one: Interaction) -> SampledPrompt:
    messages = tuple({"role": part.role, "content": part.content} for part in one.messages)
    return prompt_of(prompt_key(one), messages, {**one.sampling, "temperature": 0.0, "top_p": 1.0})


def _prompt(one: Interaction) -> str:
    return one.messages[-1].content


def _asked(case: Case) -> str | None:
    """Return the text that a case asks; ``None``: its input is not one text."""
    found = case.input
    if isinstance(found, dict) and len(found) == 1:
        (found,) = found.values()
    return found if isinstance(found, str) else None


def _is_met(compare: Comparison, answer: str, case: Case) -> bool:
    try:
        return compare(answer, case.expected) >= 1.0
    except CandidateFault:  # e.g. no number where one is expected
        return False
