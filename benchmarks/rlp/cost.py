"""CPU of one think-and-learn step, without the model's time."""

import time

import numpy as np

from benchmarks.rlp.landscapes import LANDSCAPES
from benchmarks.rlp.simulated import Inline, Simulated
from convergence_core.records import Candidate, Cell, Evaluation, Trial
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.settings import Settings
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.samplers import make_sampler, make_surrogate
from convergence_core.space import Space
from tasks.thoughts.paying import Purse
from tasks.thoughts.thinking import Thinking


def cpu() -> None:
    """Print the CPU of one think-and-learn step without the model's time, at 200 trials."""
    landscape = LANDSCAPES["mixed"]
    configuration = landscape.configuration(0)
    space = Space.from_config(configuration.search_space, {})
    sampler = make_sampler(configuration, space)
    rng = np.random.default_rng(0)
    points = [space.candidate(space.sample(rng)) for _ in range(200)]
    surrogate = make_surrogate(space)
    thinking = Thinking(
        run_id="r",
        seed=0,
        thinker=Simulated("good", space, landscape.value, 0),  # type: ignore[arg-type]  # as it is
        settings=Settings(),
        session=Inline(),  # type: ignore[arg-type]  # as it is
        surrogate=surrogate,
        state=RlpState.first(tuple(STRATEGIES)),
        replay=Replay(),
        purse=Purse(limit_usd=None),
    )
    state, trials = sampler.start(), list[Trial]()
    for generation in range(10):
        part = points[20 * generation : 20 * (generation + 1)]
        trials = [
            Trial(
                candidate=c,
                evaluations=tuple(
                    Evaluation(
                        eval_id="e",
                        cell=cell,
                        generation=generation,
                        status="ok",
                        reward=landscape.value(c.params),
                        started_us=10**9,
                    )
                    for cell in _cells(c)
                ),
            )
            for c in part
        ]
        thinking.think(generation, 0.5)
        if thinking.commitment(generation) is not None:
            thinking.predict(generation, part[:8], state)
        exogenous = frozenset(cell for c in part for cell in _cells(c))
        state = sampler.tell(state, trials)
        taught = thinking.learn(generation, trials, exogenous, 0.5)
        assert taught is not None
        thinking.commit(taught)
    fresh = [space.candidate(space.sample(rng)) for _ in range(8)]
    parts: dict[str, list[float]] = {"think": [], "predict": [], "learn": []}
    for _ in range(20):
        times = [time.process_time()]
        thinking.think(10, 0.4)
        times.append(time.process_time())
        thinking.predict(10, fresh, state)
        thinking.advice(10)
        times.append(time.process_time())
        thinking.learn(10, trials, frozenset(), 0.3)
        times.append(time.process_time())
        for name, a, b in zip(parts, times, times[1:], strict=False):
            parts[name].append(1000.0 * (b - a))
    medians = {name: float(np.median(values)) for name, values in parts.items()}
    told = ", ".join(f"{name} {value:.1f} ms" for name, value in medians.items())
    print(f"CPU of one step at 200 trials: {sum(medians.values()):.1f} ms ({told})")


def _cells(candidate: Candidate) -> list[Cell]:
    return [Cell(candidate_id=candidate.candidate_id, case_id=f"c{i}") for i in range(4)]
