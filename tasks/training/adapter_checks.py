"""Verdicts on a new adapter by held-out prompts.

A repair is a prompt whose answer was marked low and that the adapter in service answers rightly, by
its likeliest answer. Training on new marks may undo what earlier ones taught, so that each is asked again of
every new adapter.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convergence_core.errors import CandidateFault, ConfigurationError
from convergence_core.feedback.activation_gate import GateMeasures, gate_checks
from convergence_core.feedback.adapter_records import GateCheck
from convergence_core.feedback.held_out import HeldOutAnswer, compare_held_out
from convergence_core.feedback.objectives import DESIRABLE_FROM, desirability
from convergence_core.feedback.offline_reward import offline_reward
from convergence_core.feedback.records import HIGHEST, LOWEST, Interaction
from convergence_core.feedback.safety import SafetyRule, n_new_flags, safety_flags
from convergence_core.judges.report import Figure
from convergence_core.records import Case, Estimate
from convergence_core.result.number_text import plural
from tasks.functions.user_functions import load_function
from tasks.inputs.loader import Loaded
from tasks.metrics.comparisons import LIKENESSES, Comparison, comparison, needs_expected
from tasks.models.files import ModelFiles
from tasks.models.requests import ChatRequest
from tasks.training.judged_model import JudgedModel, UnusableAdapterError, request_of
from tasks.training.marks import RoleMarks, prompt_key

MAX_REPAIR_PROMPTS: Final = 200
"""Prompts that were marked low and are asked: the first by their hash, so always the same."""
RIGHT_FROM: Final = (DESIRABLE_FROM - LOWEST) / (HIGHEST - LOWEST)
"""Lowest rater's mark of a right answer, as a share of the scale."""

Rate = Callable[[str, str], float]
"""(prompt, answer) → its mark as a share of the scale."""
IsRight = Callable[[str], bool]


class RightAnswers:
    """What says whether an answer is right: test cases by their metrics, else the rater."""

    def __init__(self, loaded: Loaded, rate: Rate | None) -> None:
        """Prepare.

        Args:
            loaded: the configuration. A case judges where its input is the prompt, it has an expected
                value, and a metric holds the whole answer against that.
            rate: the rater; ``None`` if there is none.
        """
        self._rate = rate
        self._comparisons: list[Comparison] = [
            comparison(metric, loaded.schemas.get(name))
            for name, metric in loaded.configuration.evaluation.metrics.items()
            if needs_expected(metric)
            and metric.type not in LIKENESSES
            and metric.field is metric.expected_field is None
        ]
        self._cases = {
            text: case
            for case in loaded.cases
            if case.expected is not None and (text := _question_of(case)) is not None
        }

    def of(self, prompt: str) -> IsRight | None:
        """Return what says whether an answer to a prompt is right; ``None`` if nothing does."""
        case, rate = self._cases.get(prompt), self._rate
        if case is not None and self._comparisons:
            return lambda answer: all(
                _is_met(comparison, answer, case) for comparison in self._comparisons
            )
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
) -> tuple[int, int, str]:
    """Ask a new adapter again what the one in service has repaired.

    Args:
        model: that answers.
        marks: of their role.
        right: says which answers are right.
        new: folder of the new adapter.
        old: folder of the one in service; ``None`` means the base model, which repaired nothing.
        old_version: of the one in service; marks of its own answers are not of an earlier version.

    Returns:
        Prompts that were marked low and that the adapter in service answers rightly; those of them
        that the new one answers rightly; what said whether an answer is right, and of how many prompts.

    Raises:
        ModelProcessError: the model could not answer.
    """
    if old is None:
        return 0, 0, "no active adapter could have repaired one"
    low = _marked_low(marks, old_version)
    judged = [
        (interaction, is_right)
        for interaction in low
        if (is_right := right.of(interaction.messages[-1].content)) is not None
    ]
    repairs = judged[:MAX_REPAIR_PROMPTS]
    repaired = _right(model, repairs, old)
    kept = _right(model, repaired, new)
    cut = (
        f", of which the first {MAX_REPAIR_PROMPTS:,} by their hash ran"
        if len(judged) > MAX_REPAIR_PROMPTS
        else ""
    )
    rest_on = (
        f"{len(judged):,} of {plural(len(low), 'prompt')} marked low under an earlier version have a test "
        f"case or a rater with the right answer{cut}"
    )
    return len(repaired), len(kept), rest_on


def _right(
    model: JudgedModel, judged: list[tuple[Interaction, IsRight]], adapter: Path
) -> list[tuple[Interaction, IsRight]]:
    """Return those that an adapter's most likely answer is right to."""
    prompts = {prompt_key(interaction): _greedy(interaction) for interaction, _ in judged}
    answers = model.answers(prompts, adapter, n=1, seed=0)
    return [pair for pair, answer in zip(judged, answers, strict=True) if pair[1](answer)]


def _marked_low(marks: RoleMarks, version: str | None) -> list[Interaction]:
    """Return an answer to each prompt that was marked low under another version, by its hash."""
    low: dict[str, Interaction] = {}
    for answer in (*marks.answers, *marks.held_out):
        if desirability(answer.rating) is False and answer.interaction.adapter_version != version:
            low.setdefault(prompt_key(answer.interaction), answer.interaction)
    return [low[key] for key in sorted(low)]


def _greedy(interaction: Interaction) -> ChatRequest:
    sampling = {**interaction.sampling, "temperature": 0.0, "top_p": 1.0}
    return request_of(interaction.chat_messages, sampling)


def _question_of(case: Case) -> str | None:
    """Return the text that a case asks; ``None`` means its input is not one text."""
    value = case.input
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return value if isinstance(value, str) else None


def _is_met(compare: Comparison, answer: str, case: Case) -> bool:
    try:
        return compare(answer, case.expected) >= 1.0
    except CandidateFault:  # e.g. no number where one is expected
        return False


MOST_PROMPTS: Final = 60
"""Held-out prompts that are answered: the first by their hash, so always the same."""
WANTED_ANSWERS: Final = 120
"""Answers of each adapter, over all prompts."""
MOST_PER_PROMPT: Final = 4
SEED: Final = 0
RATER: Final = "feedback.training.rater"
REWARD_SPAN: Final = 2.0
"""From the lowest rating's reward, -1, to the highest's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """Prompts with the answers of the new adapter and of the one in service."""

    prompts: Mapping[str, ChatRequest]
    """By their keys."""
    n: int
    """Answers to each prompt."""
    new: tuple[str, ...]
    """Those to one prompt beside each other."""
    old: tuple[str, ...]
    log_ratios: tuple[float, ...]
    """Of the new ones: log-likelihood by the new adapter less that by the old, nats."""

    @property
    def asked(self) -> list[tuple[str, str]]:
        """The prompt of each answer: its key, and the question."""
        return [
            (key, prompt.messages[-1]["content"])
            for key, prompt in self.prompts.items()
            for _ in range(self.n)
        ]


def check_adapter(
    loaded: Loaded,
    files: ModelFiles,
    marks: RoleMarks,
    *,
    new: Path,
    old: Path | None,
    old_version: str | None,
) -> tuple[GateCheck, ...]:
    """Judge a new adapter against the one in service.

    Args:
        loaded: the configuration.
        files: of the base model.
        marks: of their role.
        new: folder of the new one.
        old: folder of the one in service; ``None`` means the base model.
        old_version: of the one in service.

    Raises:
        ConfigurationError: the rater of held-out answers cannot be loaded, or gave no rating.
        ModelProcessError: the model could not answer.
    """
    rater = _rater(loaded)
    prompts = {
        prompt_key(prompt): request_of(prompt.chat_messages, prompt.sampling)
        for prompt in sorted(marks.held_out_prompts, key=prompt_key)[:MOST_PROMPTS]
    }
    with JudgedModel(files) as model:
        if problem := model.adapter_problem(new):
            return gate_checks(GateMeasures(n_held_out=0, weights_problem=problem))
        try:
            answered = _answered(model, prompts, new, old)
            difference, rests_on = (
                _logged_reward(model, marks, new, old) if rater is None else (None, "")
            )
            right = RightAnswers(loaded, rater)
            n_repairs, n_kept, repairs_rest_on = ask_repairs(
                model, marks, right, new=new, old=old, old_version=old_version
            )
        except UnusableAdapterError as error:
            if error.adapter != new:
                raise
            return gate_checks(GateMeasures(n_held_out=0, weights_problem=str(error)))
    by_new = _rated(answered, answered.new, answered.log_ratios, rater)
    by_old = _rated(answered, answered.old, [None] * len(answered.old), rater)
    compared = compare_held_out(by_new, by_old) if prompts else None
    if compared is not None and compared.reward_difference is not None:
        difference = _measured(compared.reward_difference, times=REWARD_SPAN)
        rests_on = (
            f"the rater's ratings of {plural(len(answered.new), 'answer')} of each to "
            f"{plural(compared.n_prompts, 'held-out prompt')}"
        )
    return gate_checks(
        GateMeasures(
            n_held_out=len(prompts),
            weights_problem="",
            kl_nats=None if compared is None else _measured(compared.kl_nats),
            well_formed=None if compared is None else _measured(compared.well_formed),
            reward_difference=difference,
            reward_rests_on=rests_on,
            n_ratings=len(marks.answers) + len(marks.held_out) if rater is None else None,
            n_new_flags=_new_flags(answered) if prompts else None,
            n_repairs=n_repairs,
            n_repairs_kept=n_kept,
            repairs_rest_on=repairs_rest_on,
            has_server_answered=bool(prompts) and all(answered.new),
        )
    )


def _answered(
    model: JudgedModel, prompts: Mapping[str, ChatRequest], new: Path, old: Path | None
) -> _Answered:
    n = min(MOST_PER_PROMPT, math.ceil(WANTED_ANSWERS / max(1, len(prompts))))
    of_new = model.answers(prompts, new, n=n, seed=SEED)
    of_old = model.answers(prompts, old, n=n, seed=SEED)
    messages = [prompt.messages for prompt in prompts.values() for _ in range(n)]
    given = list(zip(messages, of_new, strict=True))
    by_new, by_old = model.log_likelihoods(given, new), model.log_likelihoods(given, old)
    return _Answered(
        prompts=prompts,
        n=n,
        new=tuple(of_new),
        old=tuple(of_old),
        log_ratios=tuple(a - b for a, b in zip(by_new, by_old, strict=True)),
    )


def _rated(
    answered: _Answered,
    texts: Sequence[str],
    log_ratios: Sequence[float | None],
    rater: Rate | None,
) -> list[HeldOutAnswer]:
    """Return answers with the rater's marks."""
    return [
        HeldOutAnswer(
            prompt_key=key,
            text=text,
            reward=None if rater is None else rater(question, text),
            log_ratio=log_ratio,
        )
        for (key, question), text, log_ratio in zip(answered.asked, texts, log_ratios, strict=True)
    ]


def _logged_reward(
    model: JudgedModel, marks: RoleMarks, new: Path, old: Path | None
) -> tuple[Figure | None, str]:
    """Return the difference of reward by the marks of held-out answers, and what it rests on."""
    given = [
        (mark.interaction.chat_messages, mark.interaction.response) for mark in marks.held_out
    ]
    if not given:
        return None, ""
    estimate = offline_reward(
        [mark.rating.reward for mark in marks.held_out],
        model.log_likelihoods(given, new),
        model.log_likelihoods(given, old),
        groups=[prompt_key(mark.interaction) for mark in marks.held_out],
    )
    if estimate is None:
        return None, ""
    return Figure(value=estimate.difference, low=estimate.low, high=estimate.high), estimate.words


def _new_flags(answered: _Answered) -> int:
    """Return on how many answers the new adapter breaks a rule that the other keeps."""

    def flags(texts: Sequence[str]) -> list[tuple[SafetyRule, ...]]:
        return [
            safety_flags(question, text)
            for (_, question), text in zip(answered.asked, texts, strict=True)
        ]

    return n_new_flags(flags(answered.old), flags(answered.new))


def _rater(loaded: Loaded) -> Rate | None:
    """Return what gives an answer's rating as a share of the scale; ``None`` if no one rates."""
    path = loaded.configuration.feedback.training.rater
    if path is None:
        return None
    function = load_function(path, loaded.base_dir, key=RATER)

    def rate(prompt: str, answer: str) -> float:
        value: object = function(prompt, answer)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not LOWEST <= float(value) <= HIGHEST:  # type: ignore[arg-type] # as checked
            rule = f"must return a number from {LOWEST} to {HIGHEST} for every answer"
            fix = "Correct the function, or leave the key out."
            raise ConfigurationError.of(RATER, rule, fix, value=str(type(value).__name__))
        return (float(value) - LOWEST) / (HIGHEST - LOWEST)  # type: ignore[arg-type] # as checked

    return rate


def _measured(interval: Estimate | None, *, times: float = 1.0) -> Figure | None:
    if interval is None:
        return None
    return Figure(
        value=times * interval.mean, low=times * interval.low, high=times * interval.high
    )
