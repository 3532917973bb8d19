"""One run on a landscape, with a simulated thinker or none."""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np

from benchmarks.rlp.landscapes import Landscape
from benchmarks.rlp.simulated import Inline, Kind, Simulated, Trusting, Way
from convergence_core.records import Evaluation, Params, Trial
from convergence_core.rlp.learner import RlpState
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan, Sampler, SearchState
from convergence_core.search.samplers import make_sampler, make_surrogate
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
    """Mean over its cells."""
    final_regret: float
    """Of the candidate handed over."""


def play(
    landscape: Landscape, way: Way, kind: Kind, seed: int, *, n_generations: int = N_GENERATIONS
) -> RunOutcome:
    """Play one run."""
    configuration = landscape.configuration(seed)
    space = build_space(configuration.search_space, {})
    sampler = make_sampler(configuration, space)
    best = landscape.optimum
    learner = (Trusting if way == "trust" else RlpLearner)(
        run_id="r",
        seed=seed,
        writer=Simulated(kind, space, landscape.value, seed),  # type: ignore[arg-type]  # as it is
        calls=LearnerCalls("RLP", Inline(), SubBudget(limit_usd=None)),  # type: ignore[arg-type]  # as it is
        state=RlpState.first(),
    )
    world, rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    setting = Setting(sampler, space, n_generations, N_CANDIDATES, rng)
    search = sampler.start()
    total, n_cells = 0.0, 0
    for generation in range(n_generations):
        state, advice = Generation(search, generation), Advice()
        if way != "plain":
            learner.think(setting, state, advice)  # type: ignore[arg-type]  # all that it reads
            advice = learner.advise(setting, state, advice)  # type: ignore[arg-type]
        asked = setting.ask(state, advice, keeps=True)
        trials = evaluate(asked.plan, landscape.value, generation, world)
        for trial in trials:
            gap = best - landscape.value(trial.candidate.params)
            total += len(trial.evaluations) * gap
            n_cells += len(trial.evaluations)
        search = sampler.tell(search, trials)
        if way != "plain":
            learner.learn(setting, state, asked, trials)  # type: ignore[arg-type]
            learner.commit()
    found = recommend(search, rng=np.random.default_rng(0), surrogate=make_surrogate(space))
    assert found is not None
    chosen = search.archive.members[found.candidate_id].candidate
    return RunOutcome(total / n_cells, best - landscape.value(chosen.params))


@dataclass(frozen=True)
class Generation:
    """What a learner reads of a ``StudyState``."""

    search: SearchState
    next_generation: int


@dataclass(frozen=True)
class Setting:
    """What a learner reads of a ``Study``: a sampler over a space, without a run."""

    sampler: Sampler
    space: Space
    n_generations: int
    n_candidates: int
    rng: np.random.Generator
    case_order: tuple[str, ...] = tuple(f"c{i}" for i in range(N_CASES))

    @property
    def schedule(self) -> SimpleNamespace:
        """The one entry that is read."""
        return SimpleNamespace(deterministic=False)

    def share_left(self, generation: int) -> float:
        """Return the share of the generations that is left before one."""
        return max(0.0, 1.0 - generation / self.n_generations)

    def ask(self, state: Generation, advice: Advice, *, keeps: bool = False) -> PlannedGeneration:
        """Plan a generation; ``keeps``: its draws are used up."""
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
                advice=advice,
            ),
        )
        if not keeps:
            self.rng.bit_generator.state = before
        return PlannedGeneration(plan=plan, rng_state=self.rng.bit_generator.state)


def evaluate(
    plan: Plan, value: Callable[[Params], float], generation: int, world: np.random.Generator
) -> list[Trial]:
    """Return noisy rewards of a plan."""
    trials = []
    for assignment in plan.assignments:
        mean = value(assignment.candidate.params)
        rewards = np.clip(mean + NOISE * world.standard_normal(len(assignment.cells)), 0.0, 1.0)
        trials.append(
            Trial(
                candidate=assignment.candidate,
                evaluations=tuple(
                    Evaluation(
                        eval_id="e",
                        cell=cell,
                        generation=generation,
                        status="ok",
                        reward=float(reward),
                        started_us=10**9,
                    )
                    for cell, reward in zip(assignment.cells, rewards, strict=True)
                ),
            )
        )
    return trials
