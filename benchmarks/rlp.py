"""What thoughts bring and cost: plain search, always trusting them, and RLP.

    python -m benchmarks.rlp [--seeds 50] [--processes 2] [--landscapes mixed hartmann rugged]
    python -m benchmarks.rlp --landscapes quickstart --seeds 50
    python -m benchmarks.rlp --cpu

Three synthetic landscapes, each with thinkers that are good, useless or adversarial, and the quick
start with the offline model as its thinker. Every run spends the same cells. The product's own
parts run: sampler, thinking, learner, lottery; on the synthetic landscapes the model is simulated:

    forecast of candidate x: normal, sd .1, mean   mu(x) + .05 N        good
                                                   .5 + .14 N           useless
                                                   1 - mu(x) + .05 N    adversarial
    without a thought: normal(.5, .3)

Each thought also proposes a region: around the optimum, anywhere, or around the worst point.
Regret: of each cell asked, summed over the run and divided by the cells (what the search cost), and
of the candidate handed over. Intervals: over seeds, Student's t, 95 %, paired with the plain run of
the same seed.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from scipy import stats

from benchmarks.machine import describe_machine
from convergence_core.config import parse_mapping
from convergence_core.recommend import recommend
from convergence_core.records import Candidate, Evaluation, Params, Trial
from convergence_core.rlp.bins import binned_normal
from convergence_core.rlp.commitments import Thought
from convergence_core.rlp.history import History
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.regions import Region
from convergence_core.rlp.replay import Replay
from convergence_core.rlp.settings import Settings
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.sampler import Advice, AskRequest, Plan
from convergence_core.samplers import make_sampler, make_surrogate
from convergence_core.space import Choice, Space
from tasks.thoughts.ladder import Ladder
from tasks.thoughts.paying import Purse
from tasks.thoughts.thinker import Drawn, Predicted
from tasks.thoughts.thinking import Thinking

Kind: TypeAlias = Literal["good", "useless", "adversarial"]
Way: TypeAlias = Literal["plain", "trust", "rlp"]
N_GENERATIONS = 12
N_CANDIDATES = 6
N_CASES = 8
NOISE = 0.15
FORECAST_SD = 0.1
SLOPES: Mapping[Kind, tuple[float, float]] = {
    "good": (1.0, 0.05),
    "useless": (0.0, 0.14),
    "adversarial": (-1.0, 0.05),
}


# -- landscapes


@dataclass(frozen=True)
class Landscape:
    """A space and its true mean reward."""

    parameters: dict[str, Any]
    value: Callable[[Params], float]
    optimum: float
    """Its highest value."""

    def configuration(self, seed: int) -> Any:
        """Return a configuration whose space this is."""
        return parse_mapping(
            {
                "api": {"name": "landscape", "function": "m:f"},
                "search_space": {"parameters": self.parameters},
                "evaluation": {
                    "test_cases": {"path": "cases.json"},
                    "metrics": {"exact_match": {"weight": 1}},
                },
                "optimization": {"algorithm": "mab_evolution", "seed": seed},
            }
        )


def _mixed(params: Params) -> float:
    height, warm = {
        "mini": (0.45, 0.3),
        "base": (0.6, 0.5),
        "large": (0.7, 0.9),
        "turbo": (0.65, 0.2),
    }[str(params["model"])]
    prompt = {"plain": 0.0, "cot": 0.1, "fewshot": 0.07}[str(params["prompt"])]
    loss = 0.35 * (float(params["temperature"]) - warm) ** 2
    loss += 0.25 * (float(params["top_p"]) - 0.85) ** 2
    return max(0.0, height + prompt - loss)


_A = np.array([[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8],
               [17, 8, 0.05, 10, 0.1, 14]])  # fmt: skip
_P = 1e-4 * np.array([[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
                      [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])  # fmt: skip


def _hartmann(params: Params) -> float:
    """Return Hartmann's function of six variables, scaled to [0, 1] (Dixon & Szego 1978)."""
    x = np.array([float(params[f"x{i}"]) for i in range(6)])
    inner = (_A * (x - _P) ** 2).sum(axis=1)
    return float(np.array([1.0, 1.2, 3.0, 3.2]) @ np.exp(-inner)) / 3.33


def _rugged(params: Params) -> float:
    x = np.array([float(params[f"x{i}"]) for i in range(3)]) - 0.62
    wave = float(np.mean(1.0 - np.cos(6.0 * math.pi * x)))
    lift = {"a": 0.0, "b": 0.15, "c": 0.05}[str(params["kind"])]
    return max(0.0, 0.85 + lift - 1.2 * float(np.mean(np.abs(x))) - 0.12 * wave)


def _floats(n: int) -> dict[str, Any]:
    return {f"x{i}": {"type": "float", "min": 0.0, "max": 1.0} for i in range(n)}


def _choice(*values: str) -> dict[str, Any]:
    return {"type": "categorical", "choices": list(values)}


LANDSCAPES: Mapping[str, Landscape] = {
    "mixed": Landscape(
        {
            "model": _choice("mini", "base", "large", "turbo"),
            "prompt": _choice("plain", "cot", "fewshot"),
            "temperature": {"type": "float", "min": 0.0, "max": 1.5},
            "top_p": {"type": "float", "min": 0.1, "max": 1.0},
        },
        _mixed,
        0.8,
    ),
    "hartmann": Landscape(_floats(6), _hartmann, 3.32237 / 3.33),
    "rugged": Landscape({**_floats(3), "kind": _choice("a", "b", "c")}, _rugged, 1.0),
}


# -- simulated thinkers


class _Channel:
    """A channel whose answers are simulated."""

    estimator = "echo"


class Simulated:
    """Thinks and predicts as its kind does, without a model."""

    def __init__(
        self, kind: Kind, space: Space, value: Callable[[Params], float], seed: int
    ) -> None:
        self.space = space
        self._slope, self._spread = SLOPES[kind]
        self._kind, self._value = kind, value
        self._rng = np.random.default_rng([seed, 77])
        points = [space.sample(self._rng) for _ in range(20_000)]
        ranked = sorted(points, key=value)
        self._about = {"good": ranked[-1], "useless": points[0], "adversarial": ranked[0]}[kind]

    async def climb(self, _asker: Any) -> Ladder:
        """Stand on a rung that needs no server."""
        return Ladder(channel=_Channel(), refused={})  # type: ignore[arg-type]  # nobody asks it

    async def think(
        self, drawn: Sequence[Drawn], _history: History, **of: Any
    ) -> tuple[Thought, ...]:
        """Return thoughts without content; each proposes a region."""
        about = self.space.sample(self._rng) if self._kind == "useless" else self._about
        return tuple(
            Thought(
                thought_id=f"{of['generation']}-{one.index}",
                generation=of["generation"],
                index=one.index,
                action=one.action,
                strategy=one.strategy,
                log_old=one.log_old,
                text=f"{of['generation']}-{one.index}",
                sha256="-",
                regions=(self._region(about),) if one.action else (),
                committed_us=of["generation"] + 1,
            )
            for one in drawn
        )

    def _region(self, about: Params) -> Region:
        intervals, values = {}, {}
        for name, parameter in self.space.parameters.items():
            if isinstance(parameter, Choice):
                values[name] = (about[name],)
            else:
                unit = parameter.to_unit(about[name])
                intervals[name] = (max(0.0, unit - 0.1), min(1.0, unit + 0.1))
        return Region(intervals, values)

    async def predict(
        self, _channel: Any, candidates: Sequence[Candidate], thoughts: Sequence[Thought],
        _history: History, *, own: Mapping[str, Sequence[Candidate]], **_of: Any,
    ) -> Predicted:  # fmt: skip
        """Return forecasts of the thinker's kind."""

        def mean(candidate: Candidate) -> float:
            said = 0.5 + self._slope * (self._value(candidate.params) - 0.5)
            return float(np.clip(said + self._spread * self._rng.standard_normal(), 0.02, 0.98))

        def forecasts(asked: Sequence[Candidate]) -> dict[str, np.ndarray]:
            return {c.candidate_id: binned_normal(mean(c), FORECAST_SD) for c in asked}

        return Predicted(
            no_thought={c.candidate_id: binned_normal(0.5, 0.3) for c in candidates},
            forecasts={t.thought_id: forecasts(candidates) for t in thoughts},
            own={name: forecasts(asked) for name, asked in own.items()},
            ended_us=1,
            notes=(),
        )


class Inline:
    """A session that runs the simulated thinker's work at once."""

    def run(self, work: Callable[[Any], Any]) -> Any:
        """Drive a coroutine that never waits."""
        coroutine = work(None)
        try:
            coroutine.send(None)
        except StopIteration as done:
            return done.value
        raise RuntimeError("simulated work must not wait")


class Trusting(Thinking):
    """Believes every thought, whatever it foretold: what RLP is measured against."""

    def advice(self, generation: int) -> Advice:
        """Return the experts with all of the weight, and nothing reserved."""
        advice = super().advice(generation)
        n = len(advice.experts)
        return Advice(experts=tuple(replace(e, weight=1.0 / n) for e in advice.experts))


# -- one run


def play(
    landscape: Landscape, way: Way, kind: Kind, seed: int, *, n_generations: int = N_GENERATIONS
) -> tuple[float, float]:
    """Return a run's mean regret over its cells, and that of the candidate handed over."""
    configuration = landscape.configuration(seed)
    space = Space.from_config(configuration.search_space, {})
    sampler = make_sampler(configuration, space)
    best = landscape.optimum
    names = tuple(STRATEGIES)
    thinking = (Trusting if way == "trust" else Thinking)(
        run_id="r",
        seed=seed,
        thinker=Simulated(kind, space, landscape.value, seed),  # type: ignore[arg-type]  # as it is
        settings=Settings(),
        session=Inline(),  # type: ignore[arg-type]  # as it is
        surrogate=make_surrogate(space),
        state=RlpState.first(names),
        replay=Replay(),
        purse=Purse(limit_usd=None),
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
    return total / n_cells, best - landscape.value(chosen.params)


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


# -- the quick start, with the offline model


def quickstart(way: Way, seed: int) -> tuple[float, float]:
    """Return 1 - nDCG@10 of the cells asked, and of the winner on held-out cases."""
    from convergence.mock.running import MockServer  # noqa: PLC0415 - for this part alone
    from tasks.conclusion import choose_finalists, conclude  # noqa: PLC0415
    from tasks.loading import load_mapping  # noqa: PLC0415
    from tasks.opening import prepare_run  # noqa: PLC0415
    from tasks.sealed import Sealed  # noqa: PLC0415
    from tasks.steps import save_generation  # noqa: PLC0415

    root = Path(__file__).parents[1] / "data/quickstart"
    import yaml  # noqa: PLC0415

    tree = yaml.safe_load((root / "optimization.yaml").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder, MockServer() as server:
        tree["storage"] = {"path": f"{folder}/store"}
        tree["output"] = {"save_path": f"{folder}/results", "formats": ["json"]}
        tree["optimization"]["evolution"] = {"population_size": 6, "generations": 6}
        tree["optimization"].setdefault("execution", {})["early_stopping"] = {"enabled": False}
        if way != "plain":
            tree["society"] = {"enabled": True}
            tree["llm"] = {"model": "tiny", "endpoint": f"{server.url}/v1"}
        loaded = load_mapping(tree, root)
        run = prepare_run(loaded, seed=seed)
        if way == "trust" and run.thinking is not None:
            run.thinking.__class__ = Trusting
        rewards: list[float] = []
        with run:
            while run.goes_on():
                run.think()
                run.predict()
                plan = run.ask()
                number = run.next_generation
                trials = [run.session.evaluate(a, number) for a in plan.assignments]
                rewards += [e.reward or 0.0 for t in trials for e in t.evaluations]
                save_generation.fn(run.run_id, number, Sealed(run.learn(trials)))
            final = [run.session.evaluate(a, None) for a in choose_finalists(run)]
            result = conclude(run, final)
        assert result.winner is not None
        return 1.0 - float(np.mean(rewards)), 1.0 - result.winner.headline()[1].mean


# -- tables


def one(task: tuple[str, Way, Kind, int]) -> tuple[float, float]:
    """Return the regrets of one run; for worker processes."""
    name, way, kind, seed = task
    return (
        quickstart(way, seed) if name == "quickstart" else play(LANDSCAPES[name], way, kind, seed)
    )


def measure(name: str, n_seeds: int, n_processes: int) -> None:
    """Print the table of one landscape."""
    kinds: Sequence[Kind] = get_args(Kind) if name != "quickstart" else ("useless",)
    ways: list[tuple[Way, Kind]] = [("plain", "good")]
    ways += [(way, kind) for kind in kinds for way in ("trust", "rlp")]
    tasks = [(name, way, kind, seed) for way, kind in ways for seed in range(n_seeds)]
    with ProcessPoolExecutor(n_processes) as pool:
        found = list(pool.map(one, tasks, chunksize=1))
    rows = {key: np.array(found[i * n_seeds : (i + 1) * n_seeds]) for i, key in enumerate(ways)}
    plain = rows["plain", "good"]
    print(f"\n{name}: {n_seeds} seeds\n")
    print("| thinker | way | regret per cell | change, paired | final regret | change, paired |")
    print("|---|---|---|---|---|---|")
    for (way, kind), values in rows.items():
        thinker = "none" if way == "plain" else ("offline model" if name == "quickstart" else kind)
        cells = [thinker, way]
        for column in (0, 1):
            cells.append(f"{values[:, column].mean():.4f}")
            cells.append("" if way == "plain" else change(values[:, column], plain[:, column]))
        print("| " + " | ".join(cells) + " |")


def change(values: np.ndarray, plain: np.ndarray) -> str:
    """Return the mean change in percent of the plain mean, with its interval."""
    gaps = (values - plain) / plain.mean()
    half = (
        float(stats.t.ppf(0.975, len(gaps) - 1)) * float(gaps.std(ddof=1)) / math.sqrt(len(gaps))
    )
    mean = 100.0 * float(gaps.mean())
    return f"{mean:+.1f} % [{mean - 100 * half:+.1f}, {mean + 100 * half:+.1f}]"


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
    state = sampler.start()
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


def _cells(candidate: Candidate) -> list[Any]:
    from convergence_core.records import Cell  # noqa: PLC0415 - a helper of one function

    return [Cell(candidate_id=candidate.candidate_id, case_id=f"c{i}") for i in range(4)]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--landscapes", nargs="+", default=list(LANDSCAPES))
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    print(describe_machine())
    if arguments.cpu:
        cpu()
        return
    for name in arguments.landscapes:
        started = time.perf_counter()
        partial(measure, n_seeds=arguments.seeds, n_processes=arguments.processes)(name)
        print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
