"""A judge's say in the draws of the real sampler: good, random, lying, or off.

Every third generation twenty pairs of the three best and three children of the best are judged
with log-odds of +-8 times the difference of their true means, or of nothing, plus noise. Trust is granted:
what a lying judge costs here is what it costs once it has passed its audit.
"""

import json
from dataclasses import replace
from typing import Final, Literal, TypeAlias

import numpy as np

from benchmarks.rlp.landscapes import Landscape
from benchmarks.rlp.runs import N_CANDIDATES, N_CASES, evaluate
from convergence_core.posterior import SpaceModel
from convergence_core.recommend import recommend
from convergence_core.records import Trial
from convergence_core.sampler import Advice, AskRequest, Expert, SearchState
from convergence_core.samplers import make_sampler, make_surrogate
from convergence_core.sao import learning
from convergence_core.sao.expert import first_weight
from convergence_core.sao.preferences import Answer, Comparison, Judgement, sigmoid
from convergence_core.sao.rounds import Rounds
from convergence_core.sao.state import JudgedPair, SaoState
from convergence_core.space import Space
from convergence_core.trust.audit import Trust
from tasks.preferences.planning import grounded_means, rivals_of

Judge: TypeAlias = Literal["off", "good", "random", "lying"]
N_GENERATIONS: Final = 9
EVERY: Final = 3
N_PAIRS: Final = 20
SLOPES: Final = {"good": 8.0, "random": 0.0, "lying": -8.0}
NOISE: Final = {"good": 0.5, "random": 1.5, "lying": 0.5}


def play(landscape: Landscape, judge: Judge, seed: int) -> tuple[float, float, float]:
    """Return mean regret of cells, regret of the candidate handed over, the judge's last weight."""
    configuration = landscape.configuration(seed)
    space = Space.from_config(configuration.search_space, {})
    sampler, surrogate = make_sampler(configuration, space), make_surrogate(space)
    world, rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    judging = np.random.default_rng([seed, 3])
    state = sampler.start()
    sao = SaoState(rounds=Rounds(limit=99), trust=Trust(n_right=45, n_items=50))
    weight = first_weight(sao.trust.value)
    sao = replace(sao, weight=weight, start_weight=weight)
    pairs: list[JudgedPair] = []
    total, n_cells = 0.0, 0
    for generation in range(N_GENERATIONS):
        if judge != "off" and generation and generation % EVERY == 0:
            sao = _judged(sao, pairs, landscape, judge, state, space, judging)
        expert = None if judge == "off" else _expert(sao, state, space)
        plan = sampler.ask(
            state,
            rng,
            AskRequest(
                generation=generation,
                n_generations=N_GENERATIONS,
                n_candidates=N_CANDIDATES,
                n_cells=N_CANDIDATES * N_CASES,
                case_ids=tuple(f"c{i}" for i in range(N_CASES)),
                advice=Advice() if expert is None else Advice(experts=(expert,)),
            ),
        )
        trials = evaluate(plan, landscape.value, generation, world)
        if expert is not None:
            sao = _learned(sao, expert, surrogate, state, trials)
        for trial in trials:
            gap = landscape.optimum - landscape.value(trial.candidate.params)
            total += len(trial.evaluations) * gap
            n_cells += len(trial.evaluations)
        state = sampler.tell(state, trials)
    found = recommend(state, rng=np.random.default_rng(0), surrogate=surrogate)
    assert found is not None
    chosen = state.archive.members[found.candidate_id].candidate
    final = landscape.optimum - landscape.value(chosen.params)
    return total / n_cells, final, 0.0 if judge == "off" else float(sao.weight or 0.0)


def _judged(  # noqa: PLR0917 - of one place
    sao: SaoState,
    pairs: list[JudgedPair],
    landscape: Landscape,
    judge: Judge,
    state: SearchState,
    space: Space,
    rng: np.random.Generator,
) -> SaoState:
    """Add a round's pairs and return the state with the judge's opinion."""
    means = grounded_means(state)
    members = state.archive.members
    leader = members[max(means, key=lambda name: means[name])].candidate
    rivals = rivals_of(state, leader, space, rng)
    for _ in range(N_PAIRS):
        a, b = (rivals[int(i)] for i in rng.choice(len(rivals), 2, replace=False))
        gap = landscape.value(a.params) - landscape.value(b.params)
        odds = SLOPES[judge] * gap + NOISE[judge] * float(rng.standard_normal())
        p = sigmoid(odds)
        pairs.append(
            JudgedPair(
                # Of the training split, whatever its words: nothing is exported here.
                comparison=Comparison(
                    prompt="judged",
                    first=Answer(text="same length", author=a.candidate_id),
                    second=Answer(text="same length", author=b.candidate_id),
                    kind="candidates",
                ),
                judgement=Judgement(p12=p, p21=p, estimator="simulated"),
                dropped_by=None,
                round_number=sao.rounds.n_done,
                position=len(pairs),
            )
        )
    unasked = {c.candidate_id: c.params for c in rivals if c.candidate_id not in members}
    return learning.with_opinion(sao, pairs, means, unasked)


def _expert(sao: SaoState, state: SearchState, space: Space) -> Expert | None:
    params = {m.candidate.candidate_id: m.candidate.params for m in state.archive}
    proposed = [space.candidate(json.loads(text), "sao") for text in sao.proposals]
    params |= {one.candidate_id: one.params for one in proposed}
    return learning.expert_of(sao, params, [one.params for one in proposed])


def _learned(
    sao: SaoState, expert: Expert, surrogate: SpaceModel, state: SearchState, trials: list[Trial]
) -> SaoState:
    fitted = surrogate.warm(state.memory).fit(state.archive)
    known = [t for t in trials if t.candidate.candidate_id in sao.opinion]
    rewards = [float(np.mean([e.reward for e in t.evaluations])) for t in known]
    evidence = learning.evidence_of(fitted, expert, [t.candidate for t in known], rewards)
    return learning.after_outcomes(sao, evidence)
