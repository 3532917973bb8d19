"""One run on a landscape, with a simulated thinker or none."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.rlp.landscapes import Landscape
from benchmarks.rlp.simulated import Inline, Kind, Simulated, Trusting, Way
from convergence_core.records import Candidate, Evaluation, Params, Trial
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.settings import RlpSettings
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest, Plan
from convergence_core.search.samplers import make_sampler, make_surrogate
from convergence_core.space.builder import build_space
from tasks.rlp.run_rlp import Thinking
from tasks.rlp.sub_budget import SubBudget

N_GENERATIONS = 12
N_CANDIDATES = 6
N_CASES = 8
NOISE = 0.15


@dataclass(frozen=True)
class Played:
    """What a run came to."""

    regret: float
    """Mean over its cells."""
    final_regret: float
    """Of the candidate handed over."""
    learned: RlpState


def play(
    landscape: Landscape, way: Way, kind: Kind, seed: int, *, n_generations: int = N_GENERATIONS
) -> Played:
    """Play one run."""
    configuration = landscape.configuration(seed)
    space = build_space(configuration.search_space, {})
    sampler = make_sampler(configuration, space)
    best = landscape.optimum
    names = tuple(STRATEGIES)
    thinking = (Trusting if way == "trust" else Thinking)(
        run_id="r",
        seed=seed,
        thinker=Simulated(kind, space, landscape.value, seed),  # type: ignore[arg-type]  # as it is
        settings=RlpSettings(),
        session=Inline(),  # type: ignore[arg-type]  # as it is
        surrogate=make_surrogate(space),
        state=RlpState.first(names),
        replay=Replay(),
        purse=SubBudget(limit_usd=None),
    )
    world, rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    state = sampler.start()
    total, n_cells = 0.0, 0
    case_ids = tuple(f"c{i}" for i in range(N_CASES))
    for generation in range(n_generations):

        def request(advice: Advice, generation: int = generation) -> AskRequest:
            return AskRequest(
                generation=generation,
                n_generations=n_generations,
                n_candidates=N_CANDIDATES,
                n_cells=N_CANDIDATES * N_CASES,
                case_ids=case_ids,
                advice=advice,
            )

        advice = Advice()
        if way != "plain":
            thinking.think(generation, 1.0 - generation / n_generations)
            if thinking.commitment(generation) is not None:
                ahead = np.random.default_rng()
                ahead.bit_generator.state = rng.bit_generator.state
                plan = sampler.ask(state, ahead, request(Advice(reserves=True)))
                thinking.predict(generation, reserved_of(plan), state)
                advice = thinking.advice(generation)
        plan = sampler.ask(state, rng, request(advice))
        trials = evaluate(plan, landscape.value, generation, world)
        for trial in trials:
            gap = best - landscape.value(trial.candidate.params)
            total += len(trial.evaluations) * gap
            n_cells += len(trial.evaluations)
        state = sampler.tell(state, trials)
        if way != "plain":
            left = 1.0 - (generation + 1) / n_generations
            taught = thinking.learn(generation, trials, plan.exogenous, left)
            assert taught is not None
            thinking.commit(taught)
    found = recommend(state, rng=np.random.default_rng(0), surrogate=make_surrogate(space))
    assert found is not None
    chosen = state.archive.members[found.candidate_id].candidate
    return Played(total / n_cells, best - landscape.value(chosen.params), thinking.state)


def reserved_of(plan: Plan) -> list[Candidate]:
    """Return the candidates that a run predicts: half of those chosen without a thought."""
    own = {cell.candidate_id for cell in plan.exogenous}
    reserved = [a.candidate for a in plan.assignments if a.candidate.candidate_id in own]
    return reserved[: -(-len(plan.assignments) // 2)]


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
