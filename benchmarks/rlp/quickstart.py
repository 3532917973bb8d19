"""One run of the quick start: with the offline model as its thinker, or a simulated one.

The product's own run, its session, store and journal included; only the thinker is put in the
offline model's place where it is a simulated one. What that one knows was asked of the target itself
beside the runs: the mean nDCG@10 of ``N_POINTS`` points over all search cases, and the posterior mean of
the surrogate between them. Regrets are against the best of these points, which is close to the best there
is, not beyond doubt it; a run may pass it.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.rlp.simulated import Kind, Simulated, Thinkers, Trusting, Way
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import Candidate, Cell, Evaluation, Params, Trial
from convergence_core.search.sampler import SearchState
from convergence_core.search.samplers import make_surrogate
from convergence_core.space import Space
from tasks.inputs.loader import load_mapping
from tasks.mock.mock_server import MockServer
from tasks.rlp.learner import RlpLearner
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.opener import prepare_run
from tasks.steps import save_generation

ROOT = Path(__file__).parents[2] / "data/quickstart"
N_GENERATIONS = 8
N_CANDIDATES = 6
MAX_CALLS = 1_400
"""Cells of a run, its final test included."""
N_POINTS = 300


def play_quickstart(way: Way, thinker: Thinkers, seed: int) -> tuple[float, float]:
    """Return the regret in nDCG@10 of the cells asked, and of the winner on held-out cases."""
    tree = yaml.safe_load((ROOT / "optimization.yaml").read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder, MockServer() as server:
        tree["storage"] = {"path": f"{folder}/store"}
        tree["output"] = {"save_path": f"{folder}/results", "formats": ["json"]}
        tree["budget"] = {"max_calls": MAX_CALLS}
        optimization = tree["optimization"]
        optimization["evolution"] = {
            "population_size": N_CANDIDATES,
            "generations": N_GENERATIONS,
        }
        optimization["execution"] = {"early_stopping": {"enabled": False}}
        if way != "plain":
            tree["society"] = {"enabled": True}
            tree["llm"] = {"model": "tiny", "endpoint": f"{server.url}/v1"}
        run = prepare_run(load_mapping(tree, ROOT), seed=seed)
        rlp = run.learners.get("rlp")
        if isinstance(rlp, RlpLearner):
            if way == "trust":
                rlp.__class__ = Trusting
            if thinker != "offline":
                stand_in(rlp, run.loaded.space, thinker, seed)
        rewards: list[float] = []
        with run:
            while run.should_continue():
                run.think("rlp")
                plan = run.ask()
                number = run.next_generation
                trials = [run.session.evaluate(a, number) for a in plan.assignments]
                rewards += [e.reward or 0.0 for t in trials for e in t.evaluations]
                save_generation.fn(run.run_id, number, run.learn(trials))
            final = [run.session.evaluate(a, None) for a in choose_finalists(run)]
            result = conclude(run, final)
        assert result.found is not None
        best = known()
        regret = best.on_search - float(np.mean(rewards))
        return regret, best.on_held_out - result.found.headline()[1].mean


def stand_in(learner: RlpLearner, space: Space, kind: Kind, seed: int) -> None:
    """Let a simulated thinker think in a run; the model's connection stays the run's to close."""
    model, found = learner.writer.model, known()
    simulated = Simulated(
        kind, space, found.worth, seed, ends=found.ends, span=found.span, model=model
    )
    learner.writer = simulated  # type: ignore[assignment]


@dataclass(frozen=True)
class Known:
    """What was asked of the target beside the runs."""

    fitted: FittedSpaceModel
    ends: tuple[Params, Params]
    """The worst and the best point."""
    on_search: float
    """Mean reward of the best point on all search cases."""
    on_held_out: float
    """The same on the held-out cases."""

    def worth(self, params: Params) -> float:
        """Return the posterior mean reward of a point."""
        asked = self.fitted.model.space.candidate(params, "rlp")
        return float(self.fitted.posterior([asked]).mean[0])

    @cached_property
    def span(self) -> tuple[float, float]:
        """What the worst and the best point are worth."""
        return self.worth(self.ends[0]), self.worth(self.ends[1])


@cache
def known() -> Known:
    """Ask the target, two minutes of it; once per process, and not at all in those forked later."""
    tree = yaml.safe_load((ROOT / "optimization.yaml").read_text("utf-8"))
    loaded = load_mapping(tree, ROOT)
    space, rng = loaded.space, np.random.default_rng(5)
    cases = [json.loads(line) for line in (ROOT / "cases.jsonl").read_text("utf-8").splitlines()]
    wanted = {case.case_id for case in loaded.search_cases}
    search = [case for case in cases if case["id"] in wanted]
    held_out = [case for case in cases if case["id"] not in wanted]
    points = [space.candidate(space.sample(rng), "sample") for _ in range(N_POINTS)]
    trials = [_trial(point, [_ndcg(point.params, case) for case in search]) for point in points]
    rewards = [float(np.mean([e.reward for e in trial.evaluations])) for trial in trials]
    worst, best = points[int(np.argmin(rewards))], points[int(np.argmax(rewards))]
    return Known(
        fitted=make_surrogate(space).fit(SearchState().tell(trials).archive),
        ends=(worst.params, best.params),
        on_search=max(rewards),
        on_held_out=float(np.mean([_ndcg(best.params, case) for case in held_out])),
    )


def _trial(candidate: Candidate, rewards: list[float]) -> Trial:
    return Trial(
        candidate=candidate,
        evaluations=tuple(
            Evaluation(
                eval_id="e",
                cell=Cell(candidate_id=candidate.candidate_id, case_id=f"c{i}"),
                generation=0,
                status="ok",
                reward=reward,
                started_us=10**9,
            )
            for i, reward in enumerate(rewards)
        ),
    )


def _ndcg(params: Params, case: Mapping[str, Any]) -> float:
    search, ndcg_at_10 = _target()
    return float(ndcg_at_10({"result": search(case["input"], params)["result"]}, case["expected"]))


@cache
def _target() -> tuple[Any, Any]:
    sys.path.insert(0, str(ROOT))
    from metrics import ndcg_at_10  # type: ignore[import-not-found]  # noqa: PLC0415 - of the quick start
    from retriever import search  # type: ignore[import-not-found]  # noqa: PLC0415

    return search, ndcg_at_10
