"""SAO for programs: preferences that a model writes and judges, with audits.

Needs no Prefect, store or run, only an object with ``complete`` (see
``convergence.plugins.learning.providers``)::

    sao = SAOMixin(config=SAOConfig(n_personas=100), llm_provider=provider)
    rows = await sao.generate_synthetic_dataset(n_samples=10)
    sao.export_dataset("training_data.jsonl", format="jsonl")

Each call is one round: prompts in persona, answers, filters, both orders of every pair.
``grounded`` items (a prompt, a right and a wrong answer) audit the judge as in runs. Without them,
the export warns.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Literal, overload

from convergence.plugins.learning.providers import Completer, as_llm
from convergence_core.config.optimization import SaoConfig
from convergence_core.judges.trust import Audit, Trust
from convergence_core.ports import LLM, WorstCase
from convergence_core.records import Candidate, Case, Json, Params, Reply, fields_of
from convergence_core.sao.executed_items import GroundedAnswer
from convergence_core.sao.filters import FilterChain, held_out_runs
from convergence_core.sao.formats import Format, evidence_of
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.preferences import JudgedPair
from convergence_core.sao.prompt_shape import PromptShape
from convergence_core.sao.round_plan import RoundPlan, RoundSource, plan_round
from convergence_core.sao.round_result import RoundOutcome, conclude_round
from convergence_core.sao.state import SaoState
from convergence_core.sao.templates import TEMPLATES_VERSION
from convergence_core.search.sampler import SearchState
from tasks.calls.model_calls import Model, ask_directly
from tasks.rlp.learner_calls import bounded
from tasks.sao.dataset import Dataset, export
from tasks.sao.factory import shipped_personas
from tasks.sao.round import RoundRunner
from tasks.sao.writer import LONGEST_ANSWER, N_AT_ONCE, AnsweringSystem, Writer

__all__ = ["SAOConfig", "SAOMixin", "SyntheticDataset"]

_INCUMBENT = Candidate(candidate_id="incumbent", params={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SAOConfig:
    """Settings of the mixin; names shared with ``society.sao`` mean the same."""

    model_name: str = ""
    """Provider's name of the model."""
    n_personas: int = 100
    """Number of personas for all rounds together."""
    temperature: float | None = 0.6
    """Temperature of answers; ``None`` omits it."""
    response_pairs: int = 2
    """Answers per prompt; above 2, the model judges all pairs."""
    quality_filter: bool = True
    iterative_rounds: int = 3
    """Maximum rounds; each call is one."""
    batch_size: int = N_AT_ONCE
    """Concurrent requests."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            ValueError: a number is out of range.
        """
        self.section()

    def section(self) -> SaoConfig:
        """Return these settings as the section ``society.sao``."""
        known = SaoConfig.model_fields.keys()
        return SaoConfig(
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticDataset:
    """Result of one call."""

    pairs: tuple[JudgedPair, ...]
    """All judged pairs, dropped ones included."""
    round_number: int | None = None
    """Number of the round, from 0; ``None`` if no round was played."""
    why_aborted: str | None = None
    """Why the judge is not trusted, so that the round keeps no pair; ``None`` if it is trusted.
    Another round may follow.
    """
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Filter → number of pairs that it dropped."""
    errors: Mapping[str, int] = field(default_factory=dict)
    audit: Audit | None = None
    stop_reason: str | None = None
    """Why no further call writes anything; ``None`` if one may."""

    @property
    def kept(self) -> tuple[JudgedPair, ...]:
        """Pairs that passed all filters."""
        return tuple(pair for pair in self.pairs if pair.dropped_by is None)

    # The dataset is a sequence of its rows.

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[dict[str, Json]]:
        return iter([_row(pair) for pair in self.kept])

    @overload
    def __getitem__(self, number: int) -> dict[str, Json]: ...

    @overload
    def __getitem__(self, number: slice) -> list[dict[str, Json]]: ...

    def __getitem__(self, number: int | slice) -> dict[str, Json] | list[dict[str, Json]]:
        return [*self][number]

    @property
    def empty_reason(self) -> str | None:
        """Why the dataset is empty; ``None`` if it has a row."""
        if self.kept:
            return None
        counts = self.errors or {
            f"dropped by the filter `{name}`": n for name, n in self.dropped.items()
        }
        reasons = "; ".join(f"{n} times {why}" for why, n in counts.items())
        return self.why_aborted or reasons or self.stop_reason or "no answer could be compared"


class SAOMixin:
    """Mixin that writes prompts, answers, judges and filters, for one event loop."""

    def __init__(
        self,
        llm_provider: LLM | Completer,
        config: SAOConfig | None = None,
        *,
        task: str = "It answers what people ask.",
        held_out: Sequence[str] = (),
        grounded: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        """Create the mixin without a call.

        Args:
            llm_provider: any object with ``complete``, awaitable or plain; see
                ``convergence.plugins.learning.providers``.
            config: see ``SAOConfig``.
            task: purpose of the system, for the prompt writer.
            held_out: texts that no prompt or answer may repeat.
            grounded: (prompt, right answer, wrong answer) to audit the judge.
        """
        self.config = config or SAOConfig()
        llm = as_llm(llm_provider)
        self._source = RoundSource(
            settings=self.config.section().model_copy(update={"audit_items": len(grounded)}),
            seed=self.config.seed,
            grammar=shipped_personas(),
            is_chat=True,
            held_out=tuple(held_out),
        )
        self._answers = tuple(
            GroundedAnswer(
                case_id=str(number),
                prompt=prompt,
                answer=text,
                author=_INCUMBENT.candidate_id,
                truth=truth,
            )
            for number, (prompt, right, wrong) in enumerate(grounded)
            for text, truth in ((right, 1.0), (wrong, 0.0))
        )
        self._state = SaoState(limit=self.config.iterative_rounds)
        self._history = RoundHistory()
        self._vouched: set[int] = set()
        model = self.config.model_name
        options: dict[str, Json] = {"max_tokens": LONGEST_ANSWER}
        if self.config.temperature is not None:
            options["temperature"] = self.config.temperature
        target = _Answering(llm, model, options)
        self._writer = Writer(
            model=Model(llm=llm, name=model, wording_version=TEMPLATES_VERSION), task=task
        )
        self._system = AnsweringSystem(target=target, warm=target, shape=PromptShape())

    @property
    def pairs(self) -> list[JudgedPair]:
        """All judged pairs of all calls."""
        return [*self._history.pairs]

    @property
    def n_rounds(self) -> int:
        """Number of rounds so far, one per call."""
        return self._state.n_rounds

    @property
    def trust(self) -> Trust:
        """Trust in the judge."""
        return self._state.trust

    async def generate_synthetic_dataset(
        self, n_samples: int = 20, *, n: int | None = None
    ) -> SyntheticDataset:
        """Play one round and return its result; ``stop_reason`` tells when to stop.

        Counts the model's errors by reason; failed answers are not replaced. A ``UserWarning``
        explains a round without rows.

        Args:
            n_samples: number of prompts to write.
            n: short name of ``n_samples``.

        Raises:
            ValueError: ``n_samples`` is below 1.
        """
        n_samples = n_samples if n is None else n
        if n_samples < 1:
            raise ValueError(f"`n_samples` must be at least 1, not {n_samples}")
        played = await self._play(n_samples)
        if played.empty_reason is not None:
            text = f"no row was written: {played.empty_reason}"
            if self._state.stop_reason is not None and played.round_number is None:
                text += ". Raise `iterative_rounds`, or make a new `SAOMixin`."
            warnings.warn(text, UserWarning, stacklevel=2)
        return played

    async def _play(self, n_samples: int) -> SyntheticDataset:
        """Play one round unless the mixin must stop."""
        if self._state.stop_reason is not None:
            return SyntheticDataset(pairs=(), stop_reason=self._state.stop_reason)
        ask_model = bounded(ask_directly, self.config.batch_size)
        settings = self._source.settings.model_copy(update={"n_samples": n_samples})
        plan = plan_round(
            replace(self._source, settings=settings),
            self._state,
            self._history,
            search=SearchState(),
            incumbent=_INCUMBENT,
            answers=self._answers,
        )
        if not plan.personas:
            reason = "all personas have answered (`n_personas`)"
            return SyntheticDataset(pairs=(), stop_reason=reason)
        filters = FilterChain(
            settings, held_out_runs(self._source.held_out), known_prompts=self._history.prompts
        )
        runner = RoundRunner(self._writer, self._system, filters, ask_model)
        return self._concluded(plan, await runner.run(plan))

    def export_dataset(
        self,
        path: str | Path,
        format: Literal["jsonl", "json", "openai"] = "jsonl",  # noqa: A002 - a public name
    ) -> dict[str, Path]:
        """Write the kept pairs of the training split; return name → file.

        Warns (``UserWarning``) until the audit trusts the judge: the rows are not fit to train on
        yet.

        Args:
            path: file of the rows.
            format: ``jsonl`` and ``json`` are TRL's rows, as lines or as one array; ``openai``
                rows fit preference tuning, as lines.

        Raises:
            ValueError: no pair was kept.
        """
        kept = [p for p in self.pairs if p.is_kept and p.split == "train"]
        if not kept:
            raise ValueError("there is no kept pair to export")
        dataset = Dataset(
            pairs=tuple(kept),
            evidence=tuple(evidence_of(p, judge=self.config.model_name) for p in kept),
            n_unvouched=sum(p.round_number not in self._vouched for p in kept),
            holds_all=True,
        )
        if dataset.doubt is not None:
            text = f"these rows are not fit to train on yet: {dataset.doubt}"
            warnings.warn(text, UserWarning, stacklevel=2)
        form: Format = "openai" if format == "openai" else "trl"
        return export(dataset, Path(path), form, as_array=format == "json")

    def _concluded(self, plan: RoundPlan, outcome: RoundOutcome) -> SyntheticDataset:
        concluded = conclude_round(plan, outcome)
        self._state, self._history = concluded.state, concluded.history
        if self.trust.is_enabled:
            self._vouched.add(plan.round_number)
        return SyntheticDataset(
            pairs=outcome.pairs,
            round_number=plan.round_number,
            why_aborted=outcome.abort_reason,
            dropped={str(name): n for name, n in outcome.dropped.items() if n},
            errors=outcome.errors,
            audit=outcome.audit,
            stop_reason=self._state.stop_reason,
        )


class _Answering:
    """Chat model as the answering system."""

    def __init__(self, llm: LLM, model: str, options: Mapping[str, Json]) -> None:
        self._llm, self._model, self._options = llm, model, options

    @property
    def provider(self) -> str:
        return self._llm.provider

    def request(self, params: Params, case: Case) -> Json:  # noqa: ARG002 - the model has no parameters
        return {"model": self._model, "messages": [_message(case)], "options": {**self._options}}

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - never read here
        return WorstCase()

    async def call(self, params: Params, case: Case) -> Reply:  # noqa: ARG002 - as above
        done = await self._llm.complete([_message(case)], model=self._model, **self._options)
        return Reply(
            value=done.text,
            provider=self._llm.provider,
            **fields_of(done, "latency_ms", "usage", "model", "finish_reason"),
        )

    async def aclose(self) -> None:
        """Leave the caller's model open."""


def _row(pair: JudgedPair) -> dict[str, Json]:
    c = pair.comparison
    return {"prompt": c.prompt, "chosen": pair.chosen.text, "rejected": pair.rejected.text}


def _message(case: Case) -> dict[str, Json]:
    return {"role": "user", "content": case.input}
