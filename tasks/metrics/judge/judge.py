"""LLM judge: a chat model that measures answers, through paid calls."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal, TypeAlias

from convergence_core.budget.prices import PriceTable
from convergence_core.config import JudgeMetric
from convergence_core.config.evaluation import LlmConfig
from convergence_core.errors import (
    CandidateFault,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
)
from convergence_core.judges.report import JudgeMode
from convergence_core.ports import LLM
from convergence_core.records import Case, Json, Params, Reply, canonical_json, fields_of
from tasks.calls.metric_calls import Asker, PaidCall
from tasks.calls.model_calls import Model
from tasks.json_values import MISSING, as_text, field_of
from tasks.metrics.comparisons import expected_part
from tasks.metrics.judge.prompts import EVALUATOR_VERSION, judge_messages, response_format
from tasks.metrics.judge.verdicts import UnreadableVerdictError, hidden, read_verdict, worth
from tasks.metrics.metrics import judged_value

PURPOSE: Final = "judge"
UNREADABLE: Final = "judge_unreadable"
"""Error type of a reply without a verdict."""
INCONSISTENT: Final = "position_inconsistent"
"""Suffix of the share of verdicts that changed with the order of the answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteSummary:
    """Summary of the votes of one evaluation."""

    value: float
    """Mean of the readable votes, in [0, 1]."""
    n_votes: int = 0
    """Number of readable votes; 0 if no call was needed."""
    n_inconsistent: int = 0
    """Votes whose verdict changed with the order of the answers (pairs only)."""


def call_count(config: JudgeMetric) -> int:
    """Return the maximum calls of one judgement, without retries."""
    return config.votes * (2 if config.mode == "pairwise" else 1)


@dataclass(slots=True, eq=False)
class LlmJudge:
    """``PaidMetric`` that measures answers with a chat model.

    The judge sees the rubric, the case without its label, and answers. It never sees parameters,
    models or whose an answer is.
    """

    name: str
    """Key under ``evaluation.metrics``."""
    config: JudgeMetric
    """Configuration of the metric, of type ``llm_judge``."""
    llm_config: LlmConfig
    _: KW_ONLY
    llm: LLM
    """Chat model, called only through the ``Asker`` and closed with the judge."""
    model: str
    """Model name at its provider."""
    prices: PriceTable
    rubric: str | None = None
    """Content of ``rubric_path``; ``None`` means the configuration's ``rubric``."""
    champion: Params | None = None
    """Canonical parameters of the candidate to compare with in pairs."""
    slots: asyncio.Semaphore
    """Limit of calls in flight, which judges of one model share."""
    _rubric: str = field(init=False)
    _model: Model = field(init=False)
    _options: dict[str, Json] = field(init=False)

    def __post_init__(self) -> None:
        """Check the judge's settings.

        Raises:
            ValueError: the rubric is missing, or the champion of pairs.
        """
        text = self.config.rubric if self.rubric is None else self.rubric
        if text is None or not text.strip():
            raise ValueError(f"judge `{self.name}` needs a rubric")
        if self.config.mode == "pairwise" and self.champion is None:
            raise ValueError(f"judge `{self.name}` compares pairs and needs a champion")
        self._rubric = text
        self._model = Model(
            llm=self.llm,
            name=self.model,
            timeout_s=self.llm_config.timeout_seconds,
            credential=self.llm_config.api_key_env,
            prices=self.prices,
        )
        self._options = {"max_tokens": self.llm_config.max_tokens}
        if self.llm_config.temperature is not None:
            self._options["temperature"] = self.llm_config.temperature
        self._options["response_format"] = response_format(self.config.mode)

    @property
    def mode(self) -> JudgeMode:
        """Form of the verdict."""
        return self.config.mode

    def applies(self, case: Case) -> bool:
        """Return whether the case is judged: it has the ``expected_field``, if configured."""
        path = self.config.expected_field
        return path is None or field_of(case.expected, path) is not MISSING

    async def judge(
        self, reply: Reply, case: Case, params: Params, asker: Asker
    ) -> dict[str, float]:
        """Return the mean of the votes in [0, 1], and for pairs the share of inconsistent votes.

        Raises:
            CandidateFault: the answer lacks the metric's ``field``.
            EvaluatorFault: the judge failed; the value is missing.
        """
        votes = await self.summary(reply, case, params, asker)
        numbers = {self.name: votes.value}
        if self.mode == "pairwise" and votes.n_votes:
            numbers[f"{self.name}.{INCONSISTENT}"] = votes.n_inconsistent / votes.n_votes
        return numbers

    async def summary(self, reply: Reply, case: Case, params: Params, asker: Asker) -> VoteSummary:
        """Return the summary of the votes on an answer; see ``judge``."""
        answer = self._shown(reply)
        if self.mode == "pairwise":
            return await self._compared(answer, case, params, asker)
        return self._summary(await self._votes([(self._messages(case, answer), "A")], asker))

    async def aclose(self) -> None:
        """Close the model's connections; safe to call twice."""
        await self.llm.aclose()

    # -- pairs

    async def _compared(
        self, answer: str, case: Case, params: Params, asker: Asker
    ) -> VoteSummary:
        champion = self.champion
        assert champion is not None  # noqa: S101 - checked when the judge was made
        if canonical_json(dict(params)) == canonical_json(dict(champion)):
            return VoteSummary(value=0.5)
        try:
            other = self._shown(await asker.answer_of(champion, case))
        except CandidateFault:  # an answer beats a failure
            return VoteSummary(value=1.0)
        except InfrastructureFault as fault:
            raise self._failed("the champion's answer is missing", fault) from fault
        if other == answer:
            return VoteSummary(value=0.5)
        questions: list[_Question] = [
            (self._messages(case, answer, other), "A"),
            (self._messages(case, other, answer), "B"),
        ]
        return self._summary(await self._votes(questions, asker))

    # -- votes

    async def _votes(
        self, questions: "Sequence[_Question]", asker: Asker
    ) -> "list[list[float | _Unread]]":
        """Ask every question once per vote; return the candidate's value of each reply.

        All calls finish before a fault is raised, so that no paid call is discarded.

        Raises:
            EvaluatorFault: a call failed with a retryable fault, or the budget is spent.
        """
        n_votes, n = self.config.votes, len(questions)
        ballots = [(question, vote) for vote in range(n_votes) for question in questions]
        ended = await asyncio.gather(
            *(self._vote(question, vote, asker) for question, vote in ballots),
            return_exceptions=True,
        )
        errors = [end for end in ended if isinstance(end, BaseException)]
        if errors:
            raise min(errors, key=lambda error: isinstance(error, EvaluationFault))
        parts = [end for end in ended if not isinstance(end, BaseException)]
        return [parts[n * vote : n * (vote + 1)] for vote in range(n_votes)]

    async def _vote(self, question: "_Question", vote: int, asker: Asker) -> "float | _Unread":
        messages, candidate = question
        try:
            async with self.slots:
                reply = await asker.ask(self._call(messages, vote))
        except CandidateFault as fault:  # saved in the call log: another try returns the same
            return _Unread(self._failed("the judge refused", fault))
        except InfrastructureFault as fault:
            raise self._failed("the judge gave no answer", fault) from fault
        try:
            return worth(read_verdict(self.mode, reply.value), candidate=candidate)
        except UnreadableVerdictError as error:
            text = f"metric `{self.name}`: the judge's reply cannot be read: {error}"
            details = as_text(reply.value)
            return _Unread(EvaluatorFault(text, error_type=UNREADABLE, details=details))

    def _summary(self, votes: "Sequence[Sequence[float | _Unread]]") -> VoteSummary:
        """Return the mean of the readable votes.

        Raises:
            EvaluatorFault: fewer than half of the votes are readable.
        """
        values: list[float] = []
        unread: list[_Unread] = []
        n_inconsistent = 0
        for vote in votes:
            failed = [part for part in vote if isinstance(part, _Unread)]
            parts = {part for part in vote if not isinstance(part, _Unread)}
            if failed:
                unread.append(failed[0])
            else:
                is_consistent = len(parts) == 1
                values.append(parts.pop() if is_consistent else 0.5)
                n_inconsistent += not is_consistent
        if 2 * len(values) < len(votes):
            raise unread[0].fault
        return VoteSummary(
            value=sum(values) / len(values),
            n_votes=len(values),
            n_inconsistent=n_inconsistent,
        )

    def _failed(self, purpose: str, fault: EvaluationFault) -> EvaluatorFault:
        return EvaluatorFault(
            f"metric `{self.name}`: {purpose}: {fault}",
            **fields_of(fault, "error_type", "details"),
        )

    # -- one call

    def _shown(self, reply: Reply) -> str:
        return as_text(judged_value(self.name, reply.value, self.config.field))

    def _messages(self, case: Case, *answers: str) -> list[dict[str, Json]]:
        case_input, expected = hidden(case, self.config.label_field)
        expected = expected_part(expected, self.config.expected_field)
        blocks = [("INPUT", as_text(case_input))]
        if expected is not None:
            blocks.append(("REFERENCE", as_text(expected)))
        names = ("ANSWER",) if len(answers) == 1 else ("ANSWER A", "ANSWER B")
        blocks += zip(names, answers, strict=True)
        return judge_messages(self.mode, rubric=self._rubric, blocks=blocks)

    def _call(self, messages: Sequence[Mapping[str, Json]], vote: int) -> PaidCall:
        return self._model.call(
            PURPOSE,
            messages,
            self._options,
            key={"evaluator_version": EVALUATOR_VERSION},
            read=lambda done: done.text,
            repeat=vote,
        )


_Question: TypeAlias = tuple[list[dict[str, Json]], Literal["A", "B"]]
"""Messages of a question, and the candidate's letter in it."""


@dataclass(frozen=True, slots=True)
class _Unread:
    """Answered call without a verdict."""

    fault: EvaluatorFault
