"""SAO as a learner: rounds of preferences, and distilled prompts as candidates.

A round runs before a generation and is committed with it: its rows, its state and the generation
become visible atomically. A run killed in between repeats the round with the journal's answers and
gets the same rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from convergence_core.records import Candidate, Params, Trial
from convergence_core.result.number_text import plural
from convergence_core.sao.executed_items import GroundedAnswer
from convergence_core.sao.filters import FilterChain, held_out_runs
from convergence_core.sao.history import RoundHistory
from convergence_core.sao.round_plan import RoundSource, plan_round
from convergence_core.sao.round_result import SaoRound, conclude_round
from convergence_core.sao.rows import round_tables
from convergence_core.sao.state import SaoState
from convergence_core.search.learner import LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from tasks.rlp.learner_calls import LearnerCalls
from tasks.sao.round import RoundRunner
from tasks.sao.writer import AnsweringSystem, Writer

SAO: Final = "sao"


@dataclass(slots=True, eq=False, kw_only=True)
class SaoLearner:
    """See ``convergence_core.search.learner``."""

    name = SAO
    run_id: str
    source: RoundSource
    answers: Callable[[], Sequence[GroundedAnswer]]
    """Reads the answers of committed generations, for the judge's audit."""
    writer: Writer
    system: AnsweringSystem
    calls: LearnerCalls
    state: SaoState
    """State after the last committed generation; initially inherited from earlier runs."""
    history: RoundHistory
    """Results of earlier rounds, including those of earlier runs."""
    pending: tuple[int, SaoRound] | None = field(default=None, init=False)
    """Next generation and the round before it, finished but not yet committed."""

    @property
    def variants(self) -> Mapping[str, Sequence[str]]:
        """Text parameter → prompts distilled for it."""
        return self._current.variants

    @property
    def _current(self) -> SaoState:
        """State for planning the next generation, including the uncommitted round."""
        return self.state if self.pending is None else self.pending[1].state

    # -- rounds

    def is_due(self, state: StudyState) -> bool:
        """Whether a round is due before the next generation."""
        generation = state.next_generation
        if generation == 0 or generation % self.source.settings.every or self.pending is not None:
            return False
        return self.may_continue

    @property
    def may_continue(self) -> bool:
        """Whether another round may run."""
        return self.calls.disabled_reason is None and self.state.stop_reason is None

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:  # noqa: ARG002
        """Run the round before the next generation; return its number of kept pairs."""
        generation, incumbent = state.next_generation, study.leader(state)
        if incumbent is None:
            return 0
        answers = self.answers()
        plan = plan_round(
            self.source,
            self.state,
            self.history,
            search=state.search,
            incumbent=incumbent,
            answers=answers,
        )
        if not plan.personas:
            self.calls.disable("all personas of this run have answered (`society.sao.n_personas`)")
            return 0
        filters = FilterChain(
            self.source.settings,
            held_out_runs(self.source.held_out),
            known_prompts=self.history.prompts,
            answers=[answer.answer for answer in answers],
        )
        outcome = self.calls.run(
            lambda ask_model: RoundRunner(self.writer, self.system, filters, ask_model).run(plan),
            generation,
            scope=f"sao/{plan.round_number}",
        )
        self.pending = generation, conclude_round(plan, outcome)
        return sum(pair.is_kept for pair in outcome.pairs)

    # -- a generation

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        """Return the advice with the leader's parameters, once for each distilled prompt."""
        leader = study.leader(state) if self.variants else None
        return replace(advice, preferred=distilled(self._current, leader))

    def learn(
        self,
        study: Study,  # noqa: ARG002 - of the protocol
        state: StudyState,
        planned: PlannedGeneration,  # noqa: ARG002
        trials: Sequence[Trial],  # noqa: ARG002
    ) -> LearnerStep:
        """Return the state after the round before this generation, and its rows."""
        learned = self._current.to_json()
        if self.pending is None or self.pending[0] != state.next_generation:
            return LearnerStep(learned=learned, tables={})
        tables = round_tables(self.run_id, *self.pending)
        return LearnerStep(learned=learned, tables=tables, summary=_summary(self.pending[1]))

    def commit(self) -> None:
        """Adopt the state that the store has made durable."""
        if self.pending is not None:
            self.state, self.history = self.pending[1].state, self.pending[1].history
        self.pending = None

    def close(self) -> None:
        """Close the models' connections; safe to call twice."""
        self.calls.close(self.writer.model.llm, self.system.warm)


def _summary(finished: SaoRound) -> str:
    made = plural(finished.outcome.n_pairs, "pair")
    n_kept, n_total = (
        sum(p.is_kept for p in ps) for ps in (finished.outcome.pairs, finished.history.pairs)
    )
    return f"preferences: {made} made, {n_kept:,} kept; {plural(n_total, 'pair')} in the dataset"


def distilled(state: SaoState, leader: Candidate | None) -> tuple[Params, ...]:
    """Return the leader's parameters with each distilled prompt in place of its own.

    Distilled prompts get reserved places only while their judge is trusted; afterwards they are
    ordinary values of their parameter.
    """
    if leader is None or not state.is_believed:
        return ()
    return tuple(
        {**leader.params, name: text}
        for name, texts in state.variants.items()
        for text in texts
        if name in leader.params
    )
