"""One run on a landscape, with or without a simulated thinker."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.rlp.landscapes import Landscape
from benchmarks.rlp.simulated import Inline, Kind, Simulated, Trusting, Way
from convergence_core.posterior import SpaceModel
from convergence_core.records import Cell, Evaluation, Params, Trial
from convergence_core.rlp.learner import RlpState
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan, Sampler, SearchState
from convergence_core.search.samplers import make_sampler
from convergence_core.search.study import PlannedGeneration
from convergence_core.space import Space
from convergence_core.space.builder import build_space
from tasks.rlp.learner import RlpLearner
from tasks.rlp.learner_calls import LearnerCalls, SubBudget

N_GENERATIONS = 12
N_CANDIDATES = 6
N_CASES = 8
NOISE = 0.15


@dataclass(frozen=True)
class RunOutcome:
    """Regrets of a run."""

    regret: float
    """Mean regret over the run's cells."""
    final_regret: float
    """Regret of the recommended candidate."""


def play(
    landscape: Landscape, way: Way, kind: Kind, seed: int, *, n_generations: int = N_GENERATIONS
) -> RunOutcome:
    """Play one run."""
    configuration = landscape.configuration(seed)
    space = build_space(configuration.search_space, {})
    writer = Simulated(kind, space, landscape.value, seed)
    learner = make_learner(writer, seed, Trusting if way == "trust" else RlpLearner)
    best, world = landscape.optimum, np.random.default_rng([seed, 1])

    def reward(params: Params, _cell: Cell) -> float:
        return landscape.value(params) + NOISE * world.standard_normal()

    setting = Setting(
        make_sampler(configuration, space), space, n_generations, np.random.default_rng([seed, 2])
    )
    played = [*generations(setting, None if way == "plain" else learner, reward)]
    gaps = [
        best - landscape.value(trial.candidate.params)
        for trials, _ in played
        for trial in trials
        for _ in trial.evaluations
    ]
    return RunOutcome(float(np.mean(gaps)), best - landscape.value(played[-1][1]))


def make_learner(
    writer: Any, seed: int, kind: Callable[..., RlpLearner] = RlpLearner
) -> RlpLearner:
    """Return RLP with a writer that needs no session."""
    calls = LearnerCalls("RLP", Inline(), SubBudget(limit_usd=None))  # type: ignore[arg-type]  # as it is
    return kind(run_id="r", seed=seed, writer=writer, calls=calls, state=RlpState.first())


def generations(
    setting: "Setting", learner: RlpLearner | None, reward: Callable[[Params, Cell], float]
) -> Iterator[tuple[list[Trial], Params]]:
    """Yield each generation's trials and the setting recommended after it."""
    search = setting.sampler.start()
    surrogate = SpaceModel(space=setting.space)
    for generation in range(setting.n_generations):
        state, advice = Generation(search, generation), Advice()
        if learner is not None:
            learner.think(setting, state, advice)  # type: ignore[arg-type]  # all that it reads
            advice = learner.advise(setting, state, advice)  # type: ignore[arg-type]
        planned = setting.ask(state, advice, keeps=True)
        trials = evaluate(planned.plan, reward, generation)
        search = setting.sampler.tell(search, trials)
        if learner is not None:
            learner.learn(setting, state, planned, trials)  # type: ignore[arg-type]
            learner.commit()
        best = recommend(search, rng=np.random.default_rng(0), surrogate=surrogate)
        assert best is not None
        yield trials, search.archive.members[best.candidate_id].candidate.params


@dataclass(frozen=True)
class Generation:
    """The fields of a ``StudyState`` that a learner reads."""

    search: SearchState
    next_generation: int


@dataclass(frozen=True)
class Setting:
    """The part of a ``Study`` that a learner reads: a sampler over a space, without a run."""

    sampler: Sampler
    space: Space
    n_generations: int
    rng: np.random.Generator
    n_candidates: int = N_CANDIDATES
    case_order: tuple[str, ...] = tuple(f"c{i}" for i in range(N_CASES))

    @property
    def schedule(self) -> SimpleNamespace:
        """Schedule with the only field that the learner reads."""
        return SimpleNamespace(deterministic=False)

    def share_left(self, generation: int) -> float:
        """Return the share of generations left before this one."""
        return max(0.0, 1.0 - generation / self.n_generations)

    def ask(self, state: Generation, advice: Advice, *, keeps: bool = False) -> PlannedGeneration:
        """Plan a generation. Unless ``keeps``, restore the random generator's state."""
        before = self.rng.bit_generator.state
        plan = self.sampler.ask(
            state.search,
            self.rng,
            AskRequest(
                generation=state.next_generation,
                n_generations=self.n_generations,
                n_candidates=self.n_candidates,
                n_cells=self.n_candidates * N_CASES,
                case_ids=self.case_order,
                baseline=self.space.baseline(),
                advice=advice,
            ),
        )
        if not keeps:
            self.rng.bit_generator.state = before
        return PlannedGeneration(
            plan=plan, rng_state=self.rng.bit_generator.state, search=state.search
        )


def evaluate(plan: Plan, reward: Callable[[Params, Cell], float], generation: int) -> list[Trial]:
    """Return a plan's trials, with rewards clipped to [0, 1]."""
    return [
        Trial(
            candidate=assignment.candidate,
            evaluations=tuple(
                Evaluation(
                    eval_id="e",
                    cell=cell,
                    generation=generation,
                    status="ok",
                    reward=min(1.0, max(0.0, reward(assignment.candidate.params, cell))),
                    started_us=10**9,
                )
                for cell in assignment.cells
            ),
        )
        for assignment in plan.assignments
    ]
