"""One round, played: prompts, answers, filters, both orders, audits, distilled texts.

Everything that a round asks is a function of its plan and of the answers, so a resumed run asks the same
and reads what is paid already from the journal.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

import numpy as np

from convergence_core.judges.trust.audit import Audit, Item, Trust, audit
from convergence_core.records import Candidate
from convergence_core.sao.executed_items import AuditItem
from convergence_core.sao.filters import Filter, Sieve
from convergence_core.sao.personas import Persona
from convergence_core.sao.pooled import Pooled, PooledJudgement, pool
from convergence_core.sao.preferences import Answer, Comparison, Judgement, PairKind, Preference
from convergence_core.sao.state import ABORTED, JudgedPair
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.model_calls import Answered, ThoughtAsker
from tasks.rlp.probability_channels import Channel
from tasks.sao.embeddings import Embedder
from tasks.sao.pair_judge import HeardVerdict, judge
from tasks.sao.writer import AnsweringSystem, FailedError, Writer

T = TypeVar("T")

N_EXAMPLES = 3
"""Pairs that a text is distilled from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """What a round asks."""

    round_number: int
    personas: tuple[Persona, ...]
    kinds: tuple[PairKind, ...]
    """One per persona."""
    incumbent: Candidate
    rivals: tuple[Candidate, ...]
    """Candidates that are compared with each other; the incumbent is the first."""
    n_answers: int
    prompt_temperature: float | None
    failures: tuple[str, ...] = ()
    anchors: tuple[str, ...] = ()
    """Real prompts that are shown to some writers."""
    anchor_share: float = 0.0
    audit: tuple[AuditItem, ...] = ()
    frozen: tuple[JudgedPair, ...] = ()
    """Frozen pairs that are judged again."""
    judged_before: tuple[PooledJudgement, ...] = ()
    mutable: Mapping[str, str] = field(default_factory=dict)
    """Text parameter with ``mutate`` → its text in the incumbent."""
    audited_before: frozenset[str] = frozenset()
    """Ids of items that the judge was tried on in earlier rounds."""
    trust: Trust = field(default_factory=Trust)
    """In the judge, before the round."""
    seed: int = 0
    """Of the bootstrap in the judge's audit."""
    is_probation: bool = False
    """Whether prompts alone are written, since an alarm lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What came of a round."""

    prompts: tuple[str | None, ...]
    """One per persona; ``None``: it failed."""
    pairs: tuple[JudgedPair, ...] = ()
    """All judged pairs, those dropped after it included."""
    n_pairs: int = 0
    """Pairs of answers that came to be, judged or not."""
    counters: Mapping[Filter, int] = field(default_factory=dict)
    pooled: Pooled
    why_aborted: str | None = None
    audits: tuple[tuple[AuditItem, Judgement], ...] = ()
    found: Audit
    """What these say of the judge."""
    frozen_again: tuple[tuple[Judgement, Judgement], ...] = ()
    """Frozen verdicts, and what is said now."""
    variants: Mapping[str, str] = field(default_factory=dict)
    """Text parameter → the variant that was distilled."""
    errors: Mapping[str, int] = field(default_factory=dict)


def found_by(audits: Sequence[tuple[AuditItem, Judgement]], plan: RoundPlan) -> Audit:
    """Return what a round's grounded items say of the judge."""
    items = [
        Item(
            q=judgement.q,
            first_is_right=item.first_is_right,
            log_length_ratio=item.comparison.log_length_ratio,
        )
        for item, judgement in audits
    ]
    rng = np.random.default_rng([plan.seed, plan.round_number, 2_718])
    n_new = len({item.item_id for item, _ in audits} - plan.audited_before)
    return audit(items, rng, n_new=n_new)


class Batched:
    """An asker with at most so many requests in flight."""

    def __init__(self, asker: ThoughtAsker, n: int) -> None:
        self._asker = asker
        self._free = asyncio.Semaphore(n)

    async def ask(self, call: PaidCall, label: str) -> Answered:
        """See ``ThoughtAsker``."""
        async with self._free:
            return await self._asker.ask(call, label)


class Player:
    """Plays rounds; what it counts is of one round."""

    def __init__(
        self,
        writer: Writer,
        asked: AnsweringSystem,
        channel: Channel,
        sieve: Sieve,
        asker: ThoughtAsker,
        *,
        embedder: Embedder | None = None,
    ) -> None:
        self._writer = writer
        self._asked = asked
        self._channel = channel
        self._sieve = sieve
        self._asker = asker
        self._embedder = embedder
        self._errors: Counter[str] = Counter()

    async def play(self, plan: RoundPlan) -> Played:
        """Play a round; faults are errors with a reason, and no row."""
        prompts = await self._prompts(plan)
        if plan.is_probation:
            return Played(
                prompts=tuple(prompts),
                pooled=pool(plan.judged_before),
                found=found_by((), plan),
                errors=dict(self._errors),
            )
        comparisons = await self._comparisons(plan, prompts)
        n_pairs = len(comparisons)
        await self._embed(comparisons)
        kept = [(i, c) for i, c in comparisons if self._sieve.before_judging(c) is None]
        heard = await self._judged(((f"judge/{i}", c) for i, c in kept))
        for one in heard:
            if one.error is not None:
                self._errors[f"judgement: {one.error}"] += 1
                self._sieve.fail()
        judged = [
            (i, c, one.judgement)
            for (i, c), one in zip(kept, heard, strict=True)
            if one.judgement is not None
        ]
        mine = [
            PooledJudgement(judgement=j, log_length_ratio=c.log_length_ratio) for _, c, j in judged
        ]
        pooled = pool([*plan.judged_before, *mine])
        audits = await self._audits(plan)
        found = found_by(audits, plan)
        why = pooled.why_abort or found.why_abort
        pairs = tuple(
            JudgedPair(
                comparison=c,
                judgement=j,
                dropped_by=self._sieve.after_judging(c, j, pooled.length) if why is None
                else ABORTED,
                round_number=plan.round_number,
                position=i,
            )
            for i, c, j in judged
        )  # fmt: skip
        # A judge that nobody vouches for distils nothing.
        distils = why is None and plan.trust.after(found).is_enabled
        return Played(
            prompts=tuple(prompts),
            pairs=pairs,
            n_pairs=n_pairs,
            counters=dict(self._sieve.counters),
            pooled=pooled,
            why_aborted=why,
            audits=audits,
            found=found,
            frozen_again=await self._frozen(plan),
            variants=await self._variants(plan, pairs) if distils else {},
            errors=dict(self._errors),
        )

    # -- prompts and answers

    async def _prompts(self, plan: RoundPlan) -> list[str | None]:
        async def one(k: int, persona: Persona) -> str | None:
            # Spread evenly: with a share of .3 the prompts 0, 4, 7, 10 … see real ones.
            is_anchored = int((k + 1) * plan.anchor_share) > int(k * plan.anchor_share)
            n = len(plan.anchors)
            anchors = [plan.anchors[(k + m) % n] for m in range(min(2, n))] if is_anchored else []
            return await self._or_error(
                self._writer.write(
                    persona.text,
                    temperature=plan.prompt_temperature,
                    failures=plan.failures,
                    anchors=anchors,
                    label=f"prompt/{k}",
                    asker=self._asker,
                ),
                1,
            )

        return list(await asyncio.gather(*(one(k, p) for k, p in enumerate(plan.personas))))

    async def _comparisons(
        self, plan: RoundPlan, prompts: Sequence[str | None]
    ) -> list[tuple[int, Comparison]]:
        """Return all pairs of answers with their numbers, in the order of prompts."""
        pairs = [*combinations(range(plan.n_answers), 2)]
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
        """Return all answers to a prompt; none if one of them failed."""
        if prompt is None:
            return []
        kind = plan.kinds[k]
        authors = self._authors(plan, k)
        found = await asyncio.gather(
            *(
                self._or_error(
                    self._asked.answer(
                        prompt,
                        author,
                        kind,
                        turn if kind == "incumbent" else 0,
                        label=f"answer/{k}/{turn}",
                        asker=self._asker,
                    ),
                    n_pairs if turn == 0 else 0,
                )
                for turn, author in enumerate(authors)
            )
        )
        answers = [answer for answer in found if answer is not None]
        if len(answers) == len(authors):
            return answers
        if found[0] is not None:
            self._sieve.fail(n_pairs)
        return []

    def _authors(self, plan: RoundPlan, k: int) -> list[Candidate]:
        if plan.kinds[k] == "incumbent":
            return [plan.incumbent] * plan.n_answers
        # A ring whose stride grows once around, so that not only neighbours meet.
        n = len(plan.rivals)
        turn = sum(kind == "candidates" for kind in plan.kinds[:k])
        stride = 1 + (turn // n) % max(1, n - 1)
        return [plan.rivals[(turn + m * stride) % n] for m in range(plan.n_answers)]

    async def _embed(self, comparisons: Sequence[tuple[int, Comparison]]) -> None:
        """Let the sieve know the directions of all prompts."""
        if self._embedder is None or not comparisons:
            return
        prompts = (*self._sieve.known_prompts, *(c.prompt for _, c in comparisons))
        self._sieve.vectors, failed = await self._embedder.vectors(prompts, self._asker)
        self._errors.update(failed)

    # -- judgements

    async def _judged(self, labelled: "Iterable[tuple[str, Comparison]]") -> list[HeardVerdict]:
        return list(
            await asyncio.gather(
                *(judge(c, label, self._channel, self._asker) for label, c in labelled)
            )
        )

    async def _audits(self, plan: RoundPlan) -> tuple[tuple[AuditItem, Judgement], ...]:
        heard = await self._judged(
            (f"audit/{item.item_id}", item.comparison) for item in plan.audit
        )
        return tuple(
            (item, one.judgement)
            for item, one in zip(plan.audit, heard, strict=True)
            if one.judgement is not None
        )

    async def _frozen(self, plan: RoundPlan) -> tuple[tuple[Judgement, Judgement], ...]:
        heard = await self._judged(
            (f"frozen/{pair.comparison.pair_id}", pair.comparison) for pair in plan.frozen
        )
        return tuple(
            (pair.judgement, one.judgement)
            for pair, one in zip(plan.frozen, heard, strict=True)
            if one.judgement is not None
        )

    # -- distilled texts

    async def _variants(self, plan: RoundPlan, pairs: Sequence[JudgedPair]) -> dict[str, str]:
        """Return a new text for each parameter that may have one, from the surest pairs.

        Frozen pairs are never shown.
        """
        sure: list[Preference] = sorted(
            (p for pair in pairs if pair.split == "train" and (p := pair.preference) is not None),
            key=lambda p: (-p.margin, p.comparison.pair_id),
        )
        found: dict[str, str] = {}
        if not sure:
            return found
        for name, text in plan.mutable.items():
            written = await self._or_error(
                self._writer.distil(
                    text, sure[:N_EXAMPLES], label=f"distilled text/{name}", asker=self._asker
                ),
                0,
            )
            if written is not None and written != text:
                found[name] = written
        return found

    async def _or_error(self, work: Awaitable[T], n_pairs: int) -> T | None:
        """Return what came; ``None``: it failed, which is counted, and so are its pairs."""
        try:
            return await work
        except FailedError as error:
            self._errors[str(error)] += 1
            if n_pairs:
                self._sieve.fail(n_pairs)
            return None
