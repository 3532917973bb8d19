"""SAO in a program of your own: preferences that a model writes, judges and is distrusted for.

No Prefect, no store and no run: give a chat model that has ``complete`` (see
``convergence_core.ports.LLM``)::

    sao = SAOMixin(llm_provider, task="Answers questions on parcels.")
    found = await sao.generate_synthetic_dataset(20)
    sao.export_dataset("preferences.jsonl")

Each call is one round: prompts in persona, answers, filters, both orders of every pair. With
``grounded`` items (a prompt, a right and a wrong answer) the judge is tried on them; without, nobody
vouches for it, and the export says so.

Alarms of coverage, the audit of the judge and frozen pairs are watched as in runs. Drift and exploitation
are not: both hold the judge's marks of an incumbent against its rewards, and here there is one system with
itself and no reward. They need a run (``society.sao``).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.coverage.alarms import Alarms
from convergence_core.judges.coverage.measures import Coverage, measure
from convergence_core.judges.trust.audit import Audit, Trust
from convergence_core.ports import LLM, WorstCase
from convergence_core.records import Candidate, Case, Json, Params, Reply
from convergence_core.sao.diversity import choose, hardness_of
from convergence_core.sao.executed_items import AuditItem, Grounded, audit_items
from convergence_core.sao.filters import FilterSettings, HeldOut, Sieve
from convergence_core.sao.formats import Format
from convergence_core.sao.pooled import Pooled, PooledJudgement
from convergence_core.sao.prompt_shape import PromptShape
from convergence_core.sao.rounds import Rounds, agreement
from convergence_core.sao.state import JudgedPair
from convergence_core.sao.templates import TEMPLATES_VERSION
from tasks.calls.metric_calls import PaidCall
from tasks.rlp.channel_probe import ChannelProbe
from tasks.rlp.model_calls import SAO, Answered, Model
from tasks.sao.dataset import Dataset, export, training_of
from tasks.sao.factory import shipped_personas
from tasks.sao.history import prompts_of, texts_of
from tasks.sao.pair_judge import probe_judge_channels
from tasks.sao.round import Batched, Played, Player, RoundPlan
from tasks.sao.writer import AnsweringSystem, Writer

__all__ = ["SAOConfig", "SAOMixin", "SyntheticDataset"]

_AUTHOR = "incumbent"
_N_FROZEN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SAOConfig:
    """Fields of the original with the meaning they have here; see ``society.sao``."""

    model_name: str = ""
    """What the provider calls the model."""
    n_personas: int = 100
    """Personas drawn for all rounds together."""
    temperature: float | None = 0.6
    """Of answers; ``None``: not sent."""
    prompt_temperature: float | None = 0.9
    """Of prompts; ``None``: not sent."""
    response_pairs: int = 2
    """Answers to each prompt; above 2 all pairs are judged."""
    max_prompt_length: int = 512
    """Longest prompt, in tokens."""
    max_response_length: int = 2048
    """Longest answer, in tokens."""
    min_response_length: int = 50
    """Shortest answer, in characters."""
    similarity_threshold: float = 0.9
    quality_filter: bool = True
    diversity_factor: float = 0.7
    iterative_rounds: int = 3
    """Rounds, each of them a call, after which nothing more is written."""
    batch_size: int = 10
    """Requests in flight."""
    use_logprobs: Literal["auto"] | bool = "auto"
    dpo_beta: float = 0.1
    """Told to trainers in ``.training.json`` beside an export, as the next two; nothing here trains."""
    dpo_learning_rate: float = 1e-6
    dpo_epochs: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be.

        Raises:
            ValueError: a number is out of its range.
        """
        for name, least in (
            ("n_personas", 1), ("response_pairs", 2), ("iterative_rounds", 1), ("batch_size", 1),
            ("max_prompt_length", 16), ("max_response_length", 16), ("min_response_length", 0),
            ("dpo_epochs", 1),
        ):  # fmt: skip
            if getattr(self, name) < least:
                raise ValueError(f"`{name}` must be at least {least}, not {getattr(self, name)}")
        for name, value in (
            ("similarity_threshold", self.similarity_threshold),
            ("diversity_factor", self.diversity_factor),
        ):
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"`{name}` must lie in [0, 1], not {value}")
        for name, value in (
            ("dpo_beta", self.dpo_beta),
            ("dpo_learning_rate", self.dpo_learning_rate),
        ):
            if value <= 0.0:
                raise ValueError(f"`{name}` must be above 0, not {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticDataset:
    """What one call has brought."""

    pairs: tuple[JudgedPair, ...]
    """All judged pairs, those of no use too."""
    round_number: int | None = None
    """Of the call among those that were played, from 0; ``None``: none was."""
    why_aborted: str | None = None
    """Why the judge cannot be believed and no pair of this round is kept; ``None``: it can. Another round
    may follow."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Filter → pairs that it dropped."""
    errors: Mapping[str, int] = field(default_factory=dict)
    pooled: Pooled | None = None
    """The judge over the last 200 pairs; ``None``: nothing was judged."""
    coverage: Coverage | None = None
    audit: Audit | None = None
    stop_reason: str | None = None
    """Why no further call will write anything; ``None``: one may."""

    @property
    def kept(self) -> tuple[JudgedPair, ...]:
        """Pairs that passed all filters."""
        return tuple(pair for pair in self.pairs if pair.dropped_by is None)


class SAOMixin:
    """Writes, answers, judges and filters; for one event loop."""

    def __init__(
        self,
        llm_provider: LLM,
        config: SAOConfig | None = None,
        *,
        task: str = "It answers what people ask.",
        held_out: Sequence[str] = (),
        grounded: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        """Prepare to write.

        Args:
            llm_provider: any chat model with ``complete``.
            config: see ``SAOConfig``.
            task: what the system is for, told to who writes prompts.
            held_out: texts that no prompt or answer may repeat.
            grounded: (prompt, right answer, wrong answer) for the judge to be tried on.
        """
        self.config = config or SAOConfig()
        self.pairs: list[JudgedPair] = []
        """All judged pairs of all calls."""
        self.rounds = Rounds(limit=self.config.iterative_rounds)
        self.alarms = Alarms()
        self.trust = Trust()
        self.ladder: ChannelProbe | None = None
        """How judgements are read; ``None``: nothing was asked yet."""
        self._held_out = tuple(held_out)
        self._items = _items(grounded)
        self._asked_personas: list[int] = []
        self._probes: list[str] = []
        self._texts: list[str] = []
        self._written: list[str] = []
        self._vouched: set[int] = set()
        self._audited: set[str] = set()
        model = self.config.model_name
        self._model = Model(
            llm=llm_provider,
            name=model,
            wording_version=TEMPLATES_VERSION,
            reads_for=SAO,
        )
        options: dict[str, Json] = {"max_tokens": self.config.max_response_length}
        if self.config.temperature is not None:
            options["temperature"] = self.config.temperature
        target = _Answering(llm_provider, model, options)
        self._asked = AnsweringSystem(target=target, warm=target, shape=PromptShape())
        self._writer = Writer(model=self._model, task=task, longest=self.config.max_prompt_length)

    async def generate_synthetic_dataset(self, n_samples: int = 20) -> SyntheticDataset:
        """Play one round and return what it has brought; see ``stop_reason`` for when to stop.

        Faults of the model are counted by their reason; nothing stands in for what failed.

        Args:
            n_samples: prompts to be written.

        Raises:
            ValueError: fewer than one.
        """
        if n_samples < 1:
            raise ValueError(f"`n_samples` must be at least 1, not {n_samples}")
        if self.rounds.stop_reason is not None or self.alarms.is_off:
            return SyntheticDataset(
                pairs=(), stop_reason=self.rounds.stop_reason or self.alarms.why
            )
        asker = Batched(_Plain(), self.config.batch_size)
        if self.ladder is None:
            self.ladder = await probe_judge_channels(self._model, self.config.use_logprobs, asker)
        if self.ladder.channel is None:
            return SyntheticDataset(pairs=(), stop_reason=self.ladder.disabled_reason)
        plan = self._plan(n_samples)
        if not plan.personas:
            why = "all personas were asked (`n_personas`)"
            return SyntheticDataset(pairs=(), stop_reason=why)
        config = self.config
        sieve = Sieve(
            FilterSettings(
                min_response_length=config.min_response_length,
                similarity_threshold=config.similarity_threshold,
                quality_filter=config.quality_filter,
            ),
            HeldOut(self._held_out),
            known_prompts=[*(pair.comparison.prompt for pair in self.pairs), *self._probes],
        )
        player = Player(self._writer, self._asked, self.ladder.channel, sieve, asker)
        return self._taught(plan, await player.play(plan))

    def export_dataset(
        self, path: str | Path, form: Format = "trl", *, anyway: bool = False
    ) -> dict[str, Path]:
        """Write the kept pairs of the training split; return name → file.

        Pairs of calls after which nobody vouched for the judge, or whose texts raised an alarm of coverage,
        are left out.

        Args:
            path: of the rows; ``.json`` is one array, everything else JSON Lines.
            form: ``trl`` or ``openai``.
            anyway: write rows that nobody should train on, too.

        Raises:
            ValueError: nobody should train on them; the message says why.
        """
        kept = [p for p in self.pairs if p.dropped_by is None and p.split == "train"]
        if not kept:
            raise ValueError("there is no kept pair to export")
        vouched = [p for p in kept if p.round_number in self._vouched]
        n_unvouched = len(kept) - len(vouched)
        wide = [p for p in vouched if not p.is_collapsed]
        chosen = kept if anyway else wide
        dataset = Dataset.of(
            chosen, coverage=measure(texts_of(chosen)), n_unvouched=n_unvouched,
            n_collapsed=len(vouched) - len(wide), holds_unvouched=anyway, judge=self.config.model_name,
        )  # fmt: skip
        if dataset.doubts and not anyway:
            raise ValueError(
                f"nobody should train on these rows: {'; '.join(dataset.doubts)}. Pass "
                "`anyway=True` to write them all the same"
            )
        config = self.config
        dpo = SaoConfig(
            dpo_beta=config.dpo_beta,
            dpo_learning_rate=config.dpo_learning_rate,
            dpo_epochs=config.dpo_epochs,
        )
        return export(dataset, Path(path), form, training=training_of(dpo))

    def _plan(self, n_samples: int) -> RoundPlan:
        config, grammar = self.config, shipped_personas()
        begin = config.seed + int(self.alarms.moved * len(grammar))
        pool = grammar.walk(begin, 0, config.n_personas)
        asked = self._asked_personas
        believed = [p for p in self.pairs if p.teaches] if self.trust.is_enabled else []
        free = pool[~np.isin(pool, asked)]
        judged = [
            (pair.comparison.persona, pair.judgement.q)
            for pair in believed
            if pair.comparison.persona is not None
        ]
        personas = choose(
            grammar,
            free,
            hardness_of(grammar, free, judged),
            n=min(n_samples, max(0, config.n_personas - len(asked))),
            factor=config.diversity_factor,
            chosen=asked,
        )
        usual = config.prompt_temperature
        incumbent = Candidate(candidate_id=_AUTHOR, params={})
        frozen = [p for p in self.pairs if p.split == "audit" and p.dropped_by is None]
        return RoundPlan(
            round_number=self.rounds.n_done,
            personas=tuple(personas),
            kinds=tuple("incumbent" for _ in personas),
            incumbent=incumbent,
            rivals=(incumbent,),
            n_answers=config.response_pairs,
            prompt_temperature=None if usual is None else self.alarms.temperature(usual),
            audit=self._items if self.alarms.gives_rows else (),
            audited_before=frozenset(self._audited),
            frozen=tuple(frozen[:_N_FROZEN]),
            judged_before=tuple(
                PooledJudgement(
                    judgement=p.judgement, log_length_ratio=p.comparison.log_length_ratio
                )
                for p in self.pairs
            ),
            is_probation=not self.alarms.gives_rows,
            trust=self.trust,
            seed=config.seed,
        )

    def _taught(self, plan: RoundPlan, played: Played) -> SyntheticDataset:
        self._asked_personas += [one.index for one in plan.personas]
        written = [p for p in played.prompts if p is not None] if plan.is_probation else []
        self._probes += written
        self._written += [*prompts_of(played.pairs), *written]
        texts = [*self._texts, *texts_of(played.pairs)]
        seen = self.alarms.windows(texts, self._written, self._held_out)
        self.alarms = self.alarms.after(seen)
        self.trust = self.trust.after(played.found)
        self._audited |= {item.item_id for item, _ in played.audits}
        if self.trust.is_enabled:
            self._vouched.add(plan.round_number)
        pairs = played.pairs
        if self.alarms.is_stopped:
            pairs = tuple(replace(pair, is_collapsed=True) for pair in pairs)
        else:
            self._texts = texts
        self.pairs += pairs
        again = agreement([a for a, _ in played.frozen_again], [b for _, b in played.frozen_again])
        self.rounds = self.rounds.after(again)
        return SyntheticDataset(
            pairs=pairs,
            round_number=plan.round_number,
            why_aborted=played.why_aborted,
            dropped=dict(Counter({str(k): n for k, n in played.counters.items() if n})),
            errors=played.errors,
            pooled=played.pooled,
            coverage=seen.prompts if plan.is_probation else seen.texts,
            audit=played.found,
            stop_reason=self.rounds.stop_reason
            or (None if self.alarms.gives_rows else self.alarms.why),
        )


class _Answering:
    """A chat model as the system that answers."""

    def __init__(self, llm: LLM, model: str, options: Mapping[str, Json]) -> None:
        self._llm, self._model, self._options = llm, model, options

    @property
    def provider(self) -> str:
        return self._llm.provider

    def request(self, params: Params, case: Case) -> Json:  # noqa: ARG002 - it has none
        return {"model": self._model, "messages": [_message(case)], "options": {**self._options}}

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - nobody asks
        return WorstCase()

    async def call(self, params: Params, case: Case) -> Reply:  # noqa: ARG002 - as above
        done = await self._llm.complete([_message(case)], model=self._model, **self._options)
        return Reply(
            value=done.text,
            latency_ms=done.latency_ms,
            usage=done.usage,
            model=done.model,
            provider=self._llm.provider,
            finish_reason=done.finish_reason,
        )

    async def aclose(self) -> None:
        """The program's own model stays open."""


class _Plain:
    """Makes calls at once: no journal, no budget."""

    async def ask(self, call: PaidCall, label: str) -> Answered:  # noqa: ARG002 - for journals
        return Answered(reply=await call.send(), ended_us=None)


def _message(case: Case) -> dict[str, Json]:
    return {"role": "user", "content": case.input}


def _items(grounded: Sequence[tuple[str, str, str]]) -> tuple[AuditItem, ...]:
    answers: list[Any] = [
        Grounded(
            case_id=str(number), prompt=prompt, answer=text, author=_AUTHOR, truth=float(is_right)
        )
        for number, (prompt, right, wrong) in enumerate(grounded)
        for text, is_right in ((right, True), (wrong, False))
    ]
    return tuple(audit_items(answers, len(grounded)))
