"""Checks of a new adapter on held-out prompts.

A repair is a prompt with a low-rated answer that the active adapter now answers correctly, by its
most likely answer. Training on new ratings may undo earlier repairs, so every new adapter is
tested on each of them.
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
"""Maximum low-rated prompts to test: the first by hash, so always the same ones."""
RIGHT_FROM: Final = (DESIRABLE_FROM - LOWEST) / (HIGHEST - LOWEST)
"""Minimum rater's score of a right answer, as a share of the scale."""

Rate = Callable[[str, str], float]
"""(prompt, answer) → its rating as a share of the scale."""
IsRight = Callable[[str], bool]


class RightAnswers:
    """Judge of right answers: test cases with their metrics, or the rater."""

    def __init__(self, loaded: Loaded, rate: Rate | None) -> None:
        """Prepare the test cases and the rater.

        Args:
            loaded: Configuration. A case is a judge if its input is the prompt, it has an expected
                value, and a metric compares the whole answer with it.
            rate: The rater; ``None`` if there is none.
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
        """Return the check of answers to a prompt; ``None`` if nothing can judge them."""
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
    """Test a new adapter on the repairs of the active one.

    Args:
        model: Model that answers.
        marks: Ratings of the role.
        right: Judge of right answers.
        new: Folder of the new adapter.
        old: Folder of the active one; ``None`` means the base model, which has no repairs.
        old_version: Version of the active one; ratings of its own answers are excluded.

    Returns:
        Number of prompts that were rated low and that the active adapter answers correctly; how
            many of them the new one answers correctly; and the evidence for these judgements, in
            words.

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
    """Return the prompts that an adapter's most likely answer gets right."""
    prompts = {prompt_key(interaction): _greedy(interaction) for interaction, _ in judged}
    answers = model.answers(prompts, adapter, n=1, seed=0)
    return [pair for pair, answer in zip(judged, answers, strict=True) if pair[1](answer)]


def _marked_low(marks: RoleMarks, version: str | None) -> list[Interaction]:
    """Return one low-rated answer per prompt, of other versions only, sorted by hash."""
    low: dict[str, Interaction] = {}
    for answer in (*marks.answers, *marks.held_out):
        if desirability(answer.rating) is False and answer.interaction.adapter_version != version:
            low.setdefault(prompt_key(answer.interaction), answer.interaction)
    return [low[key] for key in sorted(low)]


def _greedy(interaction: Interaction) -> ChatRequest:
    sampling = {**interaction.sampling, "temperature": 0.0, "top_p": 1.0}
    return request_of(interaction.chat_messages, sampling)


def _question_of(case: Case) -> str | None:
    """Return the question of a case; ``None`` if its input is not one text."""
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
"""Maximum held-out prompts: the first by hash, so always the same ones."""
WANTED_ANSWERS: Final = 120
"""Target number of answers of each adapter, over all prompts."""
MOST_PER_PROMPT: Final = 4
SEED: Final = 0
RATER: Final = "feedback.training.rater"
REWARD_SPAN: Final = 2.0
"""Difference between the rewards of the highest and the lowest rating."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    """Prompts with the answers of the new and of the active adapter."""

    prompts: Mapping[str, ChatRequest]
    """Prompts by key."""
    n: int
    """Number of answers to each prompt."""
    new: tuple[str, ...]
    """Answers of the new adapter, grouped by prompt."""
    old: tuple[str, ...]
    log_ratios: tuple[float, ...]
    """Log-likelihood of each new answer by the new adapter less that by the old, nats."""

    @property
    def asked(self) -> list[tuple[str, str]]:
        """Prompt of each answer: its key and its question."""
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
    """Compare a new adapter with the active one.

    Args:
        loaded: Configuration.
        files: Files of the base model.
        marks: Ratings of the role.
        new: Folder of the new adapter.
        old: Folder of the active one; ``None`` means the base model.
        old_version: Version of the active one.

    Raises:
        ConfigurationError: the rater of held-out answers cannot be loaded, or returned no valid
            rating.
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
    """Return answers with the rater's ratings."""
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
    """Return the reward difference by ratings of held-out answers, and its evidence in words."""
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
    """Return the number of answers with a safety flag that the other adapter's lack."""

    def flags(texts: Sequence[str]) -> list[tuple[SafetyRule, ...]]:
        return [
            safety_flags(question, text)
            for (_, question), text in zip(answered.asked, texts, strict=True)
        ]

    return n_new_flags(flags(answered.old), flags(answered.new))


def _rater(loaded: Loaded) -> Rate | None:
    """Return the function that rates an answer as a share of the scale; ``None`` if none rates."""
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
