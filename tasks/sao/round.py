"""Calls of one round: prompts, answers, judgements, audits, distilled prompts.

All requests of a round are functions of its plan and the answers. So a resumed run makes the same
requests and reads paid answers from the journal.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

from convergence_core.judges.trust import Audit, audit
from convergence_core.records import Candidate
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import FilterChain
from convergence_core.sao.personas import Persona
from convergence_core.sao.preferences import (
    ABORTED,
    Answer,
    Comparison,
    JudgedPair,
    Judgement,
    abort_reason,
    agreement_of,
)
from convergence_core.sao.round_plan import RoundPlan
from convergence_core.sao.round_result import RoundOutcome
from tasks.calls.model_calls import AskModel
from tasks.sao.pair_judge import judge
from tasks.sao.writer import AnsweringSystem, FailedError, Writer

T = TypeVar("T")

N_EXAMPLES = 3
"""Number of pairs from which a prompt is distilled."""


def audit_of(audits: Sequence[tuple[AuditItem, Judgement]], plan: RoundPlan) -> Audit:
    """Return the judge's audit on a round's grounded items."""
    p_right = [j.q if item.first_is_right else 1.0 - j.q for item, j in audits]
    n_new = len({item.item_id for item, _ in audits} - {*plan.history.audited})
    return audit(p_right, n_new=n_new)


@dataclass(slots=True, eq=False)
class RoundRunner:
    """One round with its models; its counters cover only this round."""

    writer: Writer
    system: AnsweringSystem
    filters: FilterChain
    ask_model: AskModel
    _errors: Counter[str] = field(default_factory=Counter, init=False)

    async def run(self, plan: RoundPlan) -> RoundOutcome:
        """Run a round; faults become errors with a reason, and no rows."""
        prompts = await self._prompts(plan)
        comparisons = await self._comparisons(plan, prompts)
        judged = await self._judged(plan, comparisons)
        audits = await self._again([(f"audit/{i.item_id}", i.comparison, i) for i in plan.audit])
        pooled = [*plan.history.pairs, *judged]
        audit = audit_of(audits, plan)
        reason = abort_reason(pooled)
        pairs = tuple(
            replace(
                pair,
                dropped_by=self.filters.after_judging(pair) if reason is None else ABORTED,
            )
            for pair in judged
        )
        # A judge that is not trusted distils nothing.
        distils = reason is None and plan.state.trust.after(audit).is_enabled
        variants = await self._variants(plan, pairs) if distils else {}
        return RoundOutcome(
            prompts=tuple(prompts),
            pairs=pairs,
            n_pairs=len(comparisons),
            dropped=dict(self.filters.counters),
            agreement=agreement_of(pooled),
            abort_reason=reason,
            audits=audits,
            audit=audit,
            variants=variants,
            errors=dict(self._errors),
        )

    # -- prompts and answers

    async def _prompts(self, plan: RoundPlan) -> list[str | None]:
        async def one(k: int, persona: Persona) -> str | None:
            return await self._or_error(
                self.writer.write(
                    persona.text,
                    temperature=plan.prompt_temperature,
                    failures=plan.failures,
                    label=f"prompt/{k}",
                    ask_model=self.ask_model,
                ),
                n_pairs=1,
            )

        return list(await asyncio.gather(*(one(k, p) for k, p in enumerate(plan.personas))))

    async def _comparisons(
        self, plan: RoundPlan, prompts: Sequence[str | None]
    ) -> list[tuple[int, Comparison]]:
        """Return all numbered pairs of answers, in the order of prompts."""
        pairs = [*combinations(range(plan.source.settings.response_pairs), 2)]
        answered = await asyncio.gather(
            *(self._answers(plan, k, prompt, len(pairs)) for k, prompt in enumerate(prompts))
        )
        return [
            (
                k * len(pairs) + m,
                Comparison(
                    prompt=prompts[k] or "",
                    first=answers[a],
                    second=answers[b],
                    kind=plan.kinds[k],
                    persona=plan.personas[k].index,
                ),
            )
            for k, answers in enumerate(answered)
            if answers
            for m, (a, b) in enumerate(pairs)
        ]

    async def _answers(
        self, plan: RoundPlan, k: int, prompt: str | None, n_pairs: int
    ) -> list[Answer]:
        """Return all answers to a prompt; empty if one of them failed."""
        if prompt is None:
            return []
        kind = plan.kinds[k]
        authors = self._authors(plan, k)
        completions = await asyncio.gather(
            *(
                self._or_error(
                    self.system.answer(
                        prompt,
                        author,
                        kind,
                        turn if kind == "incumbent" else 0,
                        label=f"answer/{k}/{turn}",
                        ask_model=self.ask_model,
                    )
                )
                for turn, author in enumerate(authors)
            )
        )
        answers = [answer for answer in completions if answer is not None]
        if len(answers) == len(authors):
            return answers
        self.filters.fail(n_pairs)
        return []

    def _authors(self, plan: RoundPlan, k: int) -> list[Candidate]:
        n_answers = plan.source.settings.response_pairs
        if plan.kinds[k] == "incumbent":
            return [plan.incumbent] * n_answers
        # A ring whose stride grows after each turn, so that not only neighbours meet.
        n = len(plan.rivals)
        turn = sum(kind == "candidates" for kind in plan.kinds[:k])
        stride = 1 + (turn // n) % max(1, n - 1)
        return [plan.rivals[(turn + m * stride) % n] for m in range(n_answers)]

    # -- judgements

    async def _judged(
        self, plan: RoundPlan, comparisons: Sequence[tuple[int, Comparison]]
    ) -> list[JudgedPair]:
        """Judge the pairs that pass filters 1 to 6."""
        kept = [(i, c) for i, c in comparisons if self.filters.before_judging(c) is None]
        judgements = await asyncio.gather(
            *(self._or_error(self._judge(c, f"judge/{i}"), n_pairs=1) for i, c in kept)
        )
        return [
            JudgedPair(
                comparison=comparison,
                judgement=judgement,
                dropped_by=None,
                round_number=plan.round_number,
                position=i,
            )
            for (i, comparison), judgement in zip(kept, judgements, strict=True)
            if judgement is not None
        ]

    async def _again(
        self, labelled: Sequence[tuple[str, Comparison, T]]
    ) -> tuple[tuple[T, Judgement], ...]:
        """Judge pairs that have extra data; failed ones are left out."""
        judgements = await asyncio.gather(
            *(self._judge(comparison, label) for label, comparison, _ in labelled),
            return_exceptions=True,
        )
        judged = []
        for (_, _, known), judgement in zip(labelled, judgements, strict=True):
            if isinstance(judgement, Judgement):
                judged.append((known, judgement))
            elif not isinstance(judgement, FailedError):
                raise judgement
        return tuple(judged)

    def _judge(self, comparison: Comparison, label: str) -> Awaitable[Judgement]:
        return judge(comparison, label, self.writer.model, self.ask_model)

    # -- distilled texts

    async def _variants(self, plan: RoundPlan, pairs: Sequence[JudgedPair]) -> dict[str, str]:
        """Return a new prompt for each mutable parameter, from the most certain pairs."""
        sure = sorted(
            (pair for pair in pairs if pair.split == "train" and pair.is_kept),
            key=lambda p: (-abs(p.judgement.log_odds), p.comparison.pair_id),
        )[:N_EXAMPLES]
        variants: dict[str, str] = {}
        for name, text in plan.mutable.items() if sure else ():
            written = await self._or_error(
                self.writer.distil(
                    text, sure, label=f"distilled text/{name}", ask_model=self.ask_model
                )
            )
            if written is not None and written != text:
                variants[name] = written
        return variants

    async def _or_error(self, work: Awaitable[T], n_pairs: int = 0) -> T | None:
        """Return the result; ``None`` after a failure, which is counted with its pairs."""
        try:
            return await work
        except FailedError as error:
            self._errors[str(error)] += 1
            self.filters.fail(n_pairs)
            return None
