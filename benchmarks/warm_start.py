"""Value of earlier runs on random targets that stayed the same, drifted or changed.

python -m benchmarks.warm_start --seeds 40
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from benchmarks.machine import options
from benchmarks.tables import header, row, with_error
from convergence_core.evidence import Archive
from convergence_core.posterior import SpaceModel
from convergence_core.records import Params
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import Advice, AskRequest
from convergence_core.search.samplers import ThompsonSampler
from convergence_core.search.warm_start import WarmStart, warm_start
from tests.support.mixed_problem import CaseProblem, mixed_space

SPACE = mixed_space()
MODEL = SpaceModel(space=SPACE)
N_GENERATIONS, N_CELLS, N_CASES = 8, 50, 20
RELATED = ("unchanged", "other level and spread, same order", "drifted", "changed one night ago")
"""Kinds for which some earlier night is informative about today's target."""
Value = Callable[[Params], float]
Effects = Mapping[str, np.ndarray]


def draw_effects(rng: np.random.Generator) -> Effects:
    """Draw effects of model and prompt, their interaction, and optima of the numbers."""
    return {
        "model": rng.normal(0, 0.12, 4),
        "prompt": rng.normal(0, 0.08, 5),
        "both": rng.normal(0, 0.07, (4, 5)),
        "rag": rng.normal(0, 0.05, 1),
        "k": rng.uniform(2, 19, 1),
        "temperature": rng.uniform(0.1, 1.3, 4),
        "top_p": rng.uniform(0.2, 1, 1),
        "penalty": rng.uniform(-0.8, 0.8, 1),
        "curvature": np.exp(rng.normal(0, 0.5, 3)),
    }


def value_of(effects: Effects) -> Value:
    """Return the target with these effects, in [0, 1]."""
    models, prompts = (list(SPACE.parameters[name].choices) for name in ("model", "prompt"))  # type: ignore[union-attr]  # both are choices

    def value(params: Params) -> float:
        m, p = models.index(params["model"]), prompts.index(params["prompt"])
        result = 0.62 + effects["model"][m] + effects["prompt"][p] + effects["both"][m, p]
        if params["rag"]:
            result += effects["rag"][0] + 0.05
            result -= 0.0012 * (float(params["k"]) - effects["k"][0]) ** 2
        bend = effects["curvature"] * (0.35, 0.25, 0.12)
        result -= bend[0] * (float(params["temperature"]) - effects["temperature"][m]) ** 2
        result -= bend[1] * (float(params["top_p"]) - effects["top_p"][0]) ** 2
        result -= bend[2] * (float(params["penalty"]) - effects["penalty"][0]) ** 2
        return float(min(1.0, max(0.0, result)))

    return value


def drifted(a: Effects, b: Effects) -> Effects:
    """Return effects dominated by ``a``."""
    main = ("model", "prompt", "both")
    return {
        name: 0.8 * a[name] + 0.6 * (b[name] - b[name].mean())
        if name in main
        else 0.75 * a[name] + 0.25 * b[name]
        for name in a
    }


def targets(seed: int) -> dict[str, tuple[list[Value], Value]]:
    """Return each kind's targets: those of two earlier nights, newest first, and today's."""
    a, b = (draw_effects(np.random.default_rng([seed, i])) for i in (1, 2))
    old, new = value_of(a), value_of(b)
    return {
        "unchanged": ([old, old], old),
        "other level and spread, same order": ([old, old], lambda x: 0.15 + 0.6 * old(x)),
        "drifted": ([old, old], value_of(drifted(a, b))),
        "changed one night ago": ([new, old], new),
        "replaced": ([old, old], new),
        "upside down": ([old, old], lambda x: 1.0 - old(x)),
    }


def night(value: Value, seed: int, start: WarmStart) -> tuple[Archive, list[float]]:
    """Return a night's evidence, and the true value of each generation's recommendation."""
    problem = CaseProblem(space=SPACE, value=value, n_cases=N_CASES, seed=seed)
    model = replace(MODEL, earlier=start.runs)
    sampler = ThompsonSampler(
        name="mab_evolution", space=SPACE, surrogate=model, exploration_rate=0.1
    )
    rng, state, values = np.random.default_rng(seed), sampler.start(), []
    for generation in range(N_GENERATIONS):
        request = AskRequest(
            generation=generation,
            n_generations=N_GENERATIONS,
            n_candidates=10,
            n_cells=N_CELLS,
            case_ids=problem.case_ids,
            advice=Advice(winners=() if generation else start.winners),
        )
        plan = sampler.ask(state, rng, request)
        state = sampler.tell(state, problem.evaluate(plan, generation))
        found = recommend(state, rng=np.random.default_rng(0), surrogate=model)
        assert found is not None
        values.append(value(state.archive.members[found.candidate_id].candidate.params))
    return state.archive, values


def regrets(value: Value, seed: int, start: WarmStart) -> float:
    """Return the mean normalized regret x 100 over a night's generations."""
    rng = np.random.default_rng([seed, 9])
    known = np.array([value(SPACE.sample(rng)) for _ in range(6000)])
    best, middle = known.max(), np.median(known)
    _, values = night(value, seed, start)
    return float(100.0 * (best - np.mean(values)) / (best - middle))


def main() -> None:
    """Print the table of docs/samplers.md."""
    n_seeds = options(__doc__, seeds=40).seeds
    print(header("today's target", "cold", "winners alone", "winners and measurements"))
    added = []
    for kind in targets(0):
        cold, alone, whole = [], [], []
        for seed in range(n_seeds):
            earlier, value = targets(seed)[kind]
            archives = [
                (str(i), night(old, 1000 * (i + 1) + seed, WarmStart())[0])
                for i, old in enumerate(earlier)
            ]
            start = warm_start(MODEL, archives)
            cold.append(regrets(value, seed, WarmStart()))
            alone.append(regrets(value, seed, replace(start, runs=())) - cold[-1])
            whole.append(regrets(value, seed, start) - cold[-1])
        if kind in RELATED:
            added += [w - a for a, w in zip(alone, whole, strict=True)]
        gains = [with_error(gaps, "+.1f") for gaps in (alone, whole)]
        print(row(kind, f"{np.mean(cold):.1f}", *gains), flush=True)
    print(
        f"\nWhat the measurements add to the winners on related targets: {with_error(added, '+.1f')}"
    )


if __name__ == "__main__":
    main()
