"""Study: the deciding half of a run.

    state = study.start()
    while study.should_continue(state):
        asked = study.ask(state)
        trials = evaluate(asked.plan)
        state, _ = study.learn(state, asked, trials, n_calls=...)
    winner = study.recommend(state)

A ``Study`` holds the constant part of a run, a ``StudyState`` the result of the last committed
generation. Both are immutable. Each method depends on its arguments alone: the ``StudyState``
includes the state of the random generator. So a study plans the same generation for the same
state, and a run resumed from its checkpoint is the same run.

``tasks.run`` connects a study to the world: it evaluates plans and makes states durable.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from convergence_core.caveats import PERFECT_DEFAULTS
from convergence_core.config import Configuration
from convergence_core.config.optimization import EarlyStoppingConfig
from convergence_core.evidence import Archive, CellKey, key_of
from convergence_core.posterior import SpaceModel
from convergence_core.records import Assignment, Candidate, Cell, Params, Trial
from convergence_core.search.goals import Goals
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan, Sampler, SearchState
from convergence_core.search.samplers import make_sampler
from convergence_core.search.schedule import Schedule
from convergence_core.search.study_state import StudyState
from convergence_core.space import Space

StopReason: TypeAlias = tuple[Literal["done", "budget"], str]
"""Final status of a search, and its reason in words."""
TINY = 1e-9
"""Tolerance of rewards for rounding of a weighted mean."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGeneration:
    """Planned generation, or one batch of it."""

    plan: Plan
    rng_state: Mapping[str, Any]
    """Generator state after the plan's draws."""
    search: SearchState
    """Evidence for the plan."""
    n_told: int = 0
    """Number of the generation's trials in that evidence."""
    batch: int = 0
    """Number of the batch within the generation, from 0."""
    n_left: int = 0
    """Cells left for later batches of the generation."""
    is_repair: bool = False
    """Whether the plan only repeats missing cells: these are evidence, but no choice of the
    sampler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Constant part of a run, which makes its decisions."""

    space: Space
    schedule: Schedule
    sampler: Sampler
    surrogate: SpaceModel
    """Model of the evidence, which weighs earlier runs by their agreement."""
    early_stopping: EarlyStoppingConfig = field(default_factory=EarlyStoppingConfig)
    goals: Goals | None = None
    """Constraints and metrics of a Pareto run; ``None`` if only the reward counts."""
    case_weights: Mapping[str, float]
    """Search case → weight in the mean reward."""
    winners: tuple[Params, ...] = ()
    """Best points of earlier runs, re-evaluated first."""
    is_open: bool = False
    """Whether prompts join the space during the run, which makes the remaining gain unknown."""
    confidence_level: float = 0.95
    """Level of the intervals, in (0, 1)."""
    seed: int = 0

    @classmethod
    def of(
        cls,
        configuration: Configuration,
        space: Space,
        schedule: Schedule,
        surrogate: SpaceModel,
        *,
        case_weights: Mapping[str, float],
        winners: tuple[Params, ...] = (),
    ) -> Self:
        """Return the study of a configuration.

        Args:
            configuration: Configuration of the run.
            space: Search space of the run.
            schedule: Numbers of cells and calls of the run.
            surrogate: See ``Study``.
            case_weights: See ``Study``.
            winners: See ``Study``.
        """
        stopping = configuration.optimization.execution.early_stopping
        return cls(
            space=space,
            schedule=schedule,
            sampler=make_sampler(
                configuration, space, case_weights=case_weights, surrogate=surrogate
            ),
            surrogate=surrogate,
            # The mean reward does not show whether the front is complete.
            early_stopping=stopping
            if configuration.evaluation.objective == "reward"
            else stopping.model_copy(update={"enabled": False}),
            goals=Goals.of(configuration),
            case_weights=case_weights,
            winners=winners,
            is_open=configuration.writes_prompts,
            confidence_level=configuration.optimization.mab.confidence_level,
            seed=configuration.optimization.seed,
        )

    @property
    def case_order(self) -> tuple[str, ...]:
        """Search cases in their order for all candidates, shuffled once per seed."""
        cases = sorted(self.case_weights)
        return tuple(cases[int(i)] for i in self._stream(0).permutation(len(cases)))

    @property
    def baseline(self) -> Candidate | None:
        """The user's defaults; ``None`` if the configuration has none."""
        params = self.space.baseline()
        return None if params is None else self.space.candidate(params, origin="default")

    def share_left(self, generation: int) -> float:
        """Return the share of planned generations left before a generation, in [0, 1]."""
        return max(0.0, 1.0 - generation / self.schedule.n_generations)

    # -- the course of the search

    def start(self) -> StudyState:
        """Return the state before any evidence."""
        return StudyState(
            search=self.sampler.start(), rng_state=self._stream(1).bit_generator.state
        )

    def should_continue(self, state: StudyState) -> bool:
        """Return whether another generation follows."""
        return self.stop_reason(state) is None

    def stop_reason(self, state: StudyState) -> StopReason | None:
        """Return why the search has ended; ``None`` if it continues."""
        if self.repair(state) is not None:
            return None
        if state.limit is not None:
            return "budget", state.limit
        text = self._why_done(state)
        if text is not None:
            return "done", text
        if self._capacity(state) < 1:
            return "budget", f"budget.max_calls={self.schedule.max_calls} is spent"
        return None

    def _why_done(self, state: StudyState) -> str | None:
        if state.no_reward is not None:
            return state.no_reward
        if self.has_perfect_defaults(state.search.archive):
            n = len(self.case_weights)
            cases = "the only search case" if n == 1 else f"all {n:,} search cases"
            return f"{PERFECT_DEFAULTS} {cases}; these cases can show no gain"
        if state.is_exhausted:
            n = len(state.search.archive)
            return f"all {n:,} settings of the search space are evaluated on all search cases"
        if self.has_run_all_generations(state):
            n = self.schedule.n_generations
            return "its one generation was run" if n == 1 else f"all {n} generations were run"
        reason = state.stopper.reason(self.early_stopping)
        return None if reason is None else f"early stopping: {reason}"

    def has_perfect_defaults(self, archive: Archive) -> bool:
        """Return whether perfect rewards of the defaults on every search case end the search."""
        if not self._stops_at_perfect or self.baseline is None:
            return False
        member = archive.members.get(self.baseline.candidate_id)
        return member is not None and is_perfect(member.rewards, self.case_weights)

    @property
    def _stops_at_perfect(self) -> bool:
        return self.early_stopping.enabled and self.goals is None and self.surrogate.price is None

    def first_look(self, plan: Plan, trial: Trial | None = None) -> Assignment | None:
        """Return the cells of the defaults to evaluate before all others, or ``None``.

        The plan's cells come first. If their rewards are perfect, those of the other search cases
        follow, as far as the plan has room.

        Args:
            plan: Plan of the first generation.
            trial: Trial of the defaults so far; ``None`` if there is none.
        """
        if not self._stops_at_perfect or self.baseline is None:
            return None
        name = self.baseline.candidate_id
        planned = next((a for a in plan.assignments if a.candidate.candidate_id == name), None)
        if planned is None or trial is None:
            return planned
        rewards = {key_of(e): e.reward for e in trial.evaluations}
        known = {case_id for case_id, _ in rewards}
        rest = [case_id for case_id in self.case_order if case_id not in known]
        n_room = plan.n_cells - len(planned.cells)
        if not rest or len(rest) > n_room or not is_perfect(rewards, known):
            return None
        cells = tuple(Cell(candidate_id=name, case_id=case_id, repeat=0) for case_id in rest)
        return replace(planned, cells=cells)

    def has_run_all_generations(self, state: StudyState) -> bool:
        """Return whether all planned generations are committed."""
        return state.next_generation - state.n_repairs >= self.schedule.n_generations

    def ask(self, state: StudyState, advice: Advice | None = None) -> PlannedGeneration:
        """Plan the next generation.

        Args:
            state: State before the generation.
            advice: Advice of learners, or ``None``.
        """
        repair = self.repair(state)
        if repair is not None:
            return PlannedGeneration(
                plan=repair, rng_state=state.rng_state, search=state.search, is_repair=True
            )
        n_cells = self._capacity(state)
        # A thought forecasts a whole generation, chosen before any of its outcomes.
        n_batches = 1 if advice is not None else self.schedule.n_batches(n_cells)
        start = PlannedGeneration(
            plan=Plan(assignments=()),
            rng_state=state.rng_state,
            search=state.search,
            n_left=n_cells,
        )
        return self._plan(state, start, n_batches, advice or Advice())

    def ask_further(
        self, state: StudyState, planned: PlannedGeneration, trials: Sequence[Trial]
    ) -> PlannedGeneration | None:
        """Plan the next batch of a generation; ``None`` if the generation is complete.

        Args:
            state: State before the generation.
            planned: Last batch of the generation.
            trials: Trials of all its batches, in batch order.
        """
        if planned.n_left < 1:
            return None
        search = self._told(planned, trials)
        if self.has_perfect_defaults(search.archive):
            return None
        batch = planned.batch + 1
        # A raised limit runs the skipped cells first, so the plan must name all of them.
        is_limited = limit_reached(trials) is not None
        n_batches = batch + (1 if is_limited else self.schedule.n_batches(planned.n_left))
        before = replace(
            planned, search=search.at(state.search.generation), n_told=len(trials), batch=batch
        )
        further = self._plan(state, before, n_batches, Advice())
        return further if further.plan.assignments else None

    def _plan(
        self, state: StudyState, before: PlannedGeneration, n_batches: int, advice: Advice
    ) -> PlannedGeneration:
        """Return the plan of a batch, or of a whole generation if it has one batch.

        Args:
            state: State before the generation.
            before: Batch without its plan, with all cells left for the generation.
            n_batches: Number of batches of the generation.
            advice: Advice of learners.
        """
        rng = np.random.default_rng()  # noqa: TID251 - resumes the state's generator
        rng.bit_generator.state = dict(before.rng_state)
        winners = () if state.next_generation else self.winners
        n_cells = before.n_left if n_batches == before.batch + 1 else 1
        request = AskRequest(
            generation=state.next_generation,
            n_generations=self.schedule.n_generations + state.n_repairs,
            batch=before.batch,
            n_batches=n_batches,
            n_candidates=self.schedule.population_size,
            n_cells=n_cells,
            case_ids=self.case_order,
            repeats=self.schedule.repeats,
            n_again=self.schedule.n_again,
            baseline=self.space.baseline(),
            advice=replace(advice, winners=winners),
        )
        plan = self.sampler.ask(before.search, rng, request)
        return replace(
            before,
            plan=plan,
            rng_state=rng.bit_generator.state,
            n_left=before.n_left - n_cells,
        )

    def _told(self, planned: PlannedGeneration, trials: Sequence[Trial]) -> SearchState:
        """Return the evidence including the trials of a generation's last batch."""
        return self.sampler.tell(planned.search, trials[planned.n_told :])

    def repair(self, state: StudyState) -> Plan | None:
        """Return a plan that repeats missing cells; ``None`` if there are none or none is due."""
        if not state.repairs_next:
            return None
        assignments = tuple(
            Assignment(
                candidate=member.candidate,
                cells=tuple(
                    Cell(candidate_id=name, case_id=case_id, repeat=repeat)
                    for case_id, repeat in sorted(member.missing)
                ),
                label=f"again {self.space.name(member.candidate, n=3)}",
            )
            for name, member in state.search.archive.members.items()
            if member.missing
        )
        return Plan(assignments=assignments) if assignments else None

    def learn(
        self,
        state: StudyState,
        planned: PlannedGeneration,
        trials: Sequence[Trial],
        *,
        n_calls: int,
    ) -> tuple[StudyState, Recommendation | None]:
        """Return the state after a generation, and the recommendation from its evidence.

        Args:
            state: State before the generation.
            planned: Plan from ``ask``, or the last batch.
            trials: Trials of the generation, earlier batches first.
            n_calls: Calls of the run so far, including retries.
        """
        evaluations = (e for trial in trials for e in trial.evaluations)
        is_answered = state.is_answered or any(e.status == "ok" for e in evaluations)
        if planned.is_repair:
            measures = None if self.goals is None else self.goals.measures
            search = state.search.tell(trials, measures)
        else:
            search = self._told(planned, trials)
        recommendation = self.recommendation(search, rival_id=state.stopper.leader)
        after = replace(
            state,
            search=search,
            rng_state=planned.rng_state,
            next_generation=state.next_generation + 1,
            stopper=state.stopper.after(
                recommendation,
                self.early_stopping,
                regret_upper_bound=None if self.is_open else search.regret_upper_bound,
            ),
            n_calls=n_calls,
            n_repairs=state.n_repairs + planned.is_repair,
            repairs_next=state.repairs_next and not planned.is_repair,  # repairs run once
            is_exhausted=state.is_exhausted
            if planned.is_repair
            else not trials and not self.is_open and self._is_covered(search),
            is_answered=is_answered,
            no_reward=None
            if is_answered
            else why_all_raised(trials)
            if any(m.n for m in search.archive)
            else why_no_reward(trials),
            limit=limit_reached(trials),
        )
        return after, recommendation

    # -- recommendation

    def recommend(self, state: StudyState) -> Recommendation | None:
        """Return the recommendation; ``None`` if no candidate has answered."""
        return self.recommendation(state.search) if state.is_answered else None

    def leader(self, state: StudyState) -> Candidate | None:
        """Return the leader, even if all its calls failed; ``None`` before the first reward."""
        recommendation = self.recommendation(state.search)
        members = state.search.archive.members
        return None if recommendation is None else members[recommendation.candidate_id].candidate

    def recommendation(
        self, search: SearchState, *, rival_id: str | None = None
    ) -> Recommendation | None:
        """Return the recommendation from this evidence; ``None`` before the first reward.

        Args:
            search: Evidence of the run.
            rival_id: Candidate to compare with, see ``Recommendation.lead``.
        """
        return recommend(
            search,
            rng=self._stream(2),
            level=self.confidence_level,
            case_weights=self.case_weights,
            surrogate=self.surrogate,
            rival_id=rival_id,
            goals=None if self.goals is None else self.goals.fit(search.archive, self.space),
        )

    def _is_covered(self, search: SearchState) -> bool:
        """Return whether the evidence holds every point; always false for an infinite space."""
        size = self.space.size()
        return size is not None and len(search.archive) >= size

    def _capacity(self, state: StudyState) -> int:
        return self.schedule.capacity(state.next_generation - state.n_repairs, state.n_calls)

    def _stream(self, number: int) -> np.random.Generator:
        """Return a stream of the seed: 0 for case order, 1 for plans, 2 for recommendations."""
        streams = np.random.SeedSequence(self.seed).spawn(3)
        return np.random.default_rng(streams[number])  # noqa: TID251 - a function of the seed


def is_perfect(rewards: Mapping[CellKey, float | None], case_ids: Collection[str]) -> bool:
    """Return whether every reward is the highest and each of these cases has one."""
    is_full = all(reward is not None and reward >= 1.0 - TINY for reward in rewards.values())
    return is_full and {case_id for case_id, _ in rewards} >= set(case_ids)


def why_no_reward(trials: Sequence[Trial]) -> str | None:
    """Return why no trial has a reward; ``None`` if a limit is the cause or there is no cell."""
    kinds = Counter(e.error_type or e.status for trial in trials for e in trial.evaluations)
    if not kinds or limit_reached(trials) is not None:
        return None
    (kind, n), *_ = kinds.most_common()
    errors = (e.error for t in trials for e in t.evaluations if kind == (e.error_type or e.status))
    line = next((f": {error.splitlines()[0][:200]}" for error in errors if error), "")
    return f"none of {kinds.total():,} evaluations has a reward ({kind}, {n:,} times{line})"


def why_all_raised(trials: Sequence[Trial]) -> str | None:
    """Return the exception that every evaluation of a generation raised, or ``None``.

    Exception names are capitalized; those of other errors are not.
    """
    evaluations = [e for trial in trials for e in trial.evaluations]
    kinds = {e.error_type or "" for e in evaluations}
    if len(kinds) != 1 or not (kind := kinds.pop())[:1].isupper():
        return None
    n, (line, *_) = len(evaluations), (evaluations[0].error or "").splitlines() or [""]
    return f"each of {n:,} evaluations raised {kind}: {line}" if n > 1 else None


def limit_reached(trials: Sequence[Trial]) -> str | None:
    """Return the budget limit that prevented a cell, in words; ``None`` if there is none."""
    errors = (e.error for t in trials for e in t.evaluations if e.error_type == "budget")
    return next(errors, None)
