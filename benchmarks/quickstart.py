"""Quick start over many seeds: `mab_evolution` against `random` and the defaults.

    python -m benchmarks.quickstart --seeds 30 --cells 4000

Every run gets the same number of evaluations (cells) and generations, and picks its winner by the
same rule (highest posterior mean). The winner and the library's defaults then run on all held-out
cases. Samplers run directly, without Prefect, so that seeds share the retriever's caches. Function,
metric, cases and reward are the product's. Intervals: paired over seeds, Student's t, 95 %.
"""

from pathlib import Path

import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row, with_ends
from convergence_core.posterior import SpaceModel
from convergence_core.records import Candidate, Case, Evaluation, Trial, eval_id_of
from convergence_core.search.recommend import recommend
from convergence_core.search.sampler import AskRequest
from convergence_core.search.samplers import make_sampler
from data.quickstart import metrics, retriever
from tasks.inputs.loader import Loaded, load
from tasks.run.opener import with_overrides

ROOT = Path(__file__).parents[1]
N_GENERATIONS = 8


def ndcg(candidate: Candidate, case: Case) -> float:
    """Return nDCG@10 of one cell."""
    assert isinstance(case.input, dict)
    assert isinstance(case.expected, dict)
    answer = retriever.search(case.input, dict(candidate.params))
    return float(metrics.ndcg_at_10(answer, case.expected, {}))


def optimize(loaded: Loaded, algorithm: str, seed: int, n_cells: int) -> Candidate:
    """Run one search and return its winner."""
    configuration = with_overrides(loaded.configuration, seed=seed, generations=N_GENERATIONS)
    optimization = configuration.optimization.model_copy(update={"algorithm": algorithm})
    configuration = configuration.model_copy(update={"optimization": optimization})
    cases = {case.case_id: case for case in loaded.search_cases}
    order_stream, sampler_stream, draw_stream = np.random.SeedSequence(seed).spawn(3)
    ids = sorted(cases)
    order = tuple(ids[i] for i in np.random.default_rng(order_stream).permutation(len(ids)))
    sampler = make_sampler(configuration, loaded.space)
    state, rng = sampler.start(), np.random.default_rng(sampler_stream)
    for generation in range(N_GENERATIONS):
        request = AskRequest(
            generation=generation,
            n_generations=N_GENERATIONS,
            n_candidates=configuration.optimization.evolution.population_size,
            n_cells=n_cells // N_GENERATIONS,
            case_ids=order,
            baseline=loaded.space.baseline(),
        )
        trials = [
            Trial(
                candidate=assignment.candidate,
                evaluations=tuple(
                    Evaluation(
                        eval_id=eval_id_of("benchmark", generation, cell),
                        cell=cell,
                        generation=generation,
                        status="ok",
                        reward=ndcg(assignment.candidate, cases[cell.case_id]),
                    )
                    for cell in assignment.cells
                ),
            )
            for assignment in sampler.ask(state, rng, request).assignments
        ]
        state = sampler.tell(state, trials)
    found = recommend(
        state, rng=np.random.default_rng(draw_stream), surrogate=SpaceModel(space=loaded.space)
    )
    assert found is not None
    return state.archive.members[found.candidate_id].candidate


def main() -> None:
    """Run all seeds and print the table."""
    args = options(__doc__, seeds=30, cells=4000)
    loaded = load(ROOT / "data/quickstart/optimization.yaml")
    baseline = loaded.space.baseline()
    assert baseline is not None

    def held_out(candidate: Candidate) -> float:
        return float(np.mean([ndcg(candidate, case) for case in loaded.holdout_cases]))

    default = held_out(loaded.space.candidate(baseline))
    scores: dict[str, list[float]] = {"mab_evolution": [], "random": []}
    for seed in range(args.seeds):
        for name, values in scores.items():
            values.append(held_out(optimize(loaded, name, seed, args.cells)) - default)
    print(describe_machine(), f"corpus {retriever.corpus_sha256()[:12]}")
    print(f"{args.seeds} seeds, {args.cells} evaluations each; defaults {default:.4f}")
    print(header("held-out nDCG@10", "mean", "less the defaults, 95 % interval over seeds"))
    for name, values in scores.items():
        print(row(f"`{name}`", f"{default + np.mean(values):.4f}", with_ends(values, "+.4f")))
    lead = np.subtract(scores["mab_evolution"], scores["random"])
    print(row("`mab_evolution` - `random`", "", with_ends(lead, "+.4f")))


if __name__ == "__main__":
    main()
