"""``collect``: what a run has found, from its store and its evidence."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from convergence_core.config import Configuration, parse_mapping
from convergence_core.ports import CallTotals
from convergence_core.posterior import SpaceModel
from convergence_core.records import (
    Candidate,
    Case,
    Cell,
    Evaluation,
    Role,
    Trial,
    canonical_json,
    eval_id_of,
    sha256_hex,
)
from convergence_core.result import RunResult
from convergence_core.search.recommend import Recommendation, recommend
from convergence_core.search.sampler import SearchState
from convergence_core.space.builder import build_space
from tasks.inputs.cases import split_holdout
from tasks.inputs.loader import Loaded
from tasks.report.candidates import Final
from tasks.report.experiments import experiments
from tasks.report.files import write_results
from tasks.report.markdown import report_markdown
from tasks.report.page import report_html
from tasks.run.prior_runs import read_past
from tasks.run.result import collect
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.rows import candidate_rows, evaluation_row, payload_rows, posterior_rows
from tests.support.store_rows import RUN, T0, attempt_rows, run_record

CASES = tuple(Case(case_id=f"c{i:02d}", input={"n": i}, expected=i) for i in range(16))
SEARCH, HOLDOUT = split_holdout(CASES, 0.25)
KINDS = {"a": 0.2, "b": 0.7, "c": 0.4}


def configuration_of(**defaults: object) -> Configuration:
    """Return the configuration with these defaults; none: it gives none."""
    parameters: dict[str, dict[str, object]] = {
        "x": {"type": "float", "min": 0, "max": 1},
        "kind": {"type": "categorical", "choices": ["a", "b", "c"]},
    }
    for name, value in defaults.items():
        parameters[name]["default"] = value
    return parse_mapping(
        {
            "api": {"name": "bot", "function": "target.py:answer"},
            "search_space": {"parameters": parameters},
            "evaluation": {
                "test_cases": {
                    "inline": [{"id": c.case_id, "input": c.input} for c in CASES],
                    "holdout": 0.25,
                },
                "metrics": {
                    "worth": {"function": "target.py:worth"},
                    "latency_ms": {"weight": 0},
                },
            },
        }
    )


def loaded_of(**defaults: object) -> Loaded:
    configuration = configuration_of(**defaults)
    return Loaded(
        configuration=configuration,
        base_dir=Path(),
        config_path=None,
        space=build_space(configuration.search_space, {}),
        cases=CASES,
        search_cases=SEARCH,
        holdout_cases=HOLDOUT,
        cases_sha256="",
        texts={},
    )


LOADED = loaded_of(x=0.0, kind="a")
CONFIGURATION, SPACE = LOADED.configuration, LOADED.space
MODEL = SpaceModel(space=SPACE)


def worth(candidate: Candidate, case_id: str) -> float:
    """Return a known reward: by kind and x, with a case effect."""
    x = float(candidate.params["x"])
    return KINDS[str(candidate.params["kind"])] + 0.1 * x + 0.01 * (int(case_id[1:]) % 5)


def evaluated(
    candidate: Candidate,
    case_ids: Sequence[str],
    generation: int | None,
    role: Role = "search",
    **changes: Any,
) -> Trial:
    evaluations = []
    for case_id in case_ids:
        cell = Cell(
            candidate_id=candidate.candidate_id,
            case_id=case_id,
            repeat=1 if role == "fresh" else 0,
            role=role,
        )
        reward = worth(candidate, case_id)
        fields: dict[str, Any] = {
            "eval_id": eval_id_of(RUN, generation, cell),
            "cell": cell,
            "generation": generation,
            "status": "ok",
            "reward": reward,
            "metrics": {"worth": reward, "latency_ms": 5.0},
            "latency_ms": 5.0,
            "started_us": T0 + 1,
            "ended_us": T0 + 2,
            "call_key": sha256_hex(str(cell)),
            "request_text": canonical_json({"case": case_id}),
            "response_text": canonical_json({"answer": case_id}),
        }
        evaluations.append(Evaluation(**(fields | changes)))
    return Trial(candidate=candidate, evaluations=tuple(evaluations))


@dataclass
class Told:
    """A made-up run: its store, and what was learned."""

    store: ParquetStore
    search: SearchState
    n_generations: int = 0

    def generation(self, *trials: Trial, usd: float | None = 0.25) -> None:
        """Learn from a generation and publish it."""
        archive = self.search.archive.tell(trials, self.n_generations)
        self.search = replace(self.search, archive=archive)
        evaluations = [e for trial in trials for e in trial.evaluations]
        rows = [evaluation_row(RUN, e) for e in evaluations]
        self.store.publish(
            RUN,
            self.n_generations,
            {
                "payloads": payload_rows(RUN, evaluations),
                "candidates": candidate_rows(
                    RUN,
                    self.n_generations,
                    [one.candidate for one in archive if one.generation == self.n_generations],
                ),
                "evaluations": rows,
                "estimates": posterior_rows(
                    RUN,
                    self.n_generations,
                    self.recommended(),
                    n_generations=self.n_generations + 1,
                ),
                "attempts": [{**row, "cost_usd": usd} for row in attempt_rows(rows)],
                "generations": [
                    {
                        "run_id": RUN,
                        "generation": self.n_generations,
                        "n_evaluations": len(rows),
                        "posterior_mean": 0.4,
                    }
                ],
            },
        )
        self.n_generations += 1

    def recommended(self) -> Recommendation | None:
        """Return whom the evidence hands over."""
        return recommend(
            self.search,
            rng=np.random.default_rng(1),
            surrogate=MODEL,
            case_weights={case.case_id: case.weight for case in SEARCH},
        )

    def finish(self, *trials: Trial) -> None:
        """Publish the final re-estimation."""
        evaluations = [e for trial in trials for e in trial.evaluations]
        rows = [evaluation_row(RUN, e) for e in evaluations]
        self.store.publish(RUN, -1, {"evaluations": rows, "attempts": attempt_rows(rows)})

    def collect(self, *final: Trial, loaded: Loaded | None = None) -> RunResult:
        """Collect as the run's end does."""
        loaded = loaded or LOADED
        run: Any = SimpleNamespace(
            run_id=RUN,
            store=self.store,
            record=run_record(),
            loaded=loaded,
            configuration=loaded.configuration,
            state=SimpleNamespace(search=self.search),
            past=read_past(self.store, run_record(), loaded),
            journal=SimpleNamespace(totals=lambda _: CallTotals(n_attempts=99, cost_usd=1.5)),
            resources=SimpleNamespace(maybe_paid=()),
        )
        return collect(
            run,
            self.recommended(),
            status="done",
            reason="all generations were run",
            final=Final.of(final, CASES, 0.95),
        )


DEFAULT = SPACE.candidate({"x": 0.0, "kind": "a"}, origin="default")
GOOD = SPACE.candidate({"x": 0.9, "kind": "b"})
OTHERS = [SPACE.candidate({"x": x, "kind": kind}) for x in (0.2, 0.5) for kind in "ac"]
SEARCH_IDS = [case.case_id for case in SEARCH]
HOLDOUT_IDS = [case.case_id for case in HOLDOUT]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    store = ParquetStore(tmp_path / "store")
    store.save_run(run_record())
    told = Told(store=store, search=SearchState())
    told.generation(
        evaluated(DEFAULT, SEARCH_IDS, 0), *(evaluated(one, SEARCH_IDS[:6], 0) for one in OTHERS)
    )
    told.generation(evaluated(GOOD, SEARCH_IDS, 1), evaluated(OTHERS[0], SEARCH_IDS[6:], 1))
    return told


def final_of(candidate: Candidate) -> Trial:
    held = evaluated(candidate, HOLDOUT_IDS, None, "holdout")
    fresh = evaluated(candidate, SEARCH_IDS, None, "fresh")
    return Trial(candidate=candidate, evaluations=held.evaluations + fresh.evaluations)


@pytest.fixture
def finished(told: Told) -> Callable[..., RunResult]:
    final = (final_of(GOOD), final_of(DEFAULT))
    told.finish(*final)
    return lambda: told.collect(*final)


def test_the_winner_and_the_default_are_estimated_apart_by_role(finished):
    result = finished()
    winner, baseline = result.winner, result.baseline
    assert winner is not None
    assert baseline is not None
    assert winner.candidate_id == GOOD.candidate_id
    assert dict(winner.params) == dict(GOOD.params)
    assert baseline.candidate_id == DEFAULT.candidate_id
    expected = np.mean([worth(GOOD, case_id) for case_id in HOLDOUT_IDS])
    assert winner.holdout is not None
    assert winner.holdout.mean == pytest.approx(expected)
    assert (winner.holdout.n_cases, baseline.holdout.n_cases) == (4, 4)
    assert (winner.fresh.n_cases, winner.search.n_cases) == (12, 12)
    assert winner.metrics["holdout"]["worth"] == pytest.approx(expected)
    assert winner.metrics["search"]["latency_ms"] == 5.0


def test_measured_means_of_winner_and_default_cover_the_same_cases(told):
    failed = HOLDOUT_IDS[:2]
    broken = evaluated(GOOD, failed, None, "holdout", status="error", metrics={}, reward=0.0)
    good = evaluated(GOOD, HOLDOUT_IDS[2:], None, "holdout")
    default = evaluated(DEFAULT, HOLDOUT_IDS, None, "holdout")
    trials = (
        Trial(candidate=GOOD, evaluations=broken.evaluations + good.evaluations),
        default,
    )
    told.finish(*trials)
    result = told.collect(*trials)
    for report, candidate in ((result.winner, GOOD), (result.baseline, DEFAULT)):
        expected = np.mean([worth(candidate, case_id) for case_id in HOLDOUT_IDS[2:]])
        assert report.metrics["holdout"]["worth"] == pytest.approx(expected)


def test_raw_metrics_of_candidates_weigh_cases_as_rewards_do(told):
    trial = evaluated(GOOD, SEARCH_IDS[:2], 2)
    values = zip(trial.evaluations, (1.0, 0.0), (3.0, 1.0), strict=True)
    rows = [
        evaluation_row(RUN, replace(e, metrics={"half": value}), weight=weight)
        for e, value, weight in values
    ]
    n = told.n_generations
    generations = [{"run_id": RUN, "generation": n, "n_evaluations": 2, "posterior_mean": 0.4}]
    told.store.publish(RUN, n, {"evaluations": rows, "generations": generations})
    shown = {row["candidate_id"]: row["metrics"] for row in experiments(told.store, RUN)}
    assert shown[GOOD.candidate_id]["half"] == 0.75


def test_differences_are_paired_over_cases(finished):
    result = finished()
    assert result.difference is not None
    assert result.difference.mean == pytest.approx(0.59)
    assert result.difference.n_cases == 4
    # Four equal differences are four cases, not a certainty.
    assert result.difference.low == pytest.approx(0.59 - 1.59 * (1 - 0.025**0.25), abs=1e-4)
    assert result.difference.low < 0 < result.difference.high < 1
    assert result.difference_fresh.n_cases == 12


def test_counts_are_those_of_the_store_and_the_journal(finished):
    result = finished()
    n_search = 12 + 4 * 6 + 12 + 6
    assert result.n_evaluations == n_search + 2 * 16
    assert (result.n_calls, result.cost_usd) == (99, 1.5)
    assert (result.n_failed, result.n_missing, result.n_skipped, result.n_cached) == (0, 0, 0, 0)
    assert result.n_candidates == 6
    assert result.generations_run == 2


def test_the_curve_tells_what_was_known_at_the_time(finished):
    first, last = finished().curve
    winner = finished().winner
    assert (first.n_evaluations, last.n_evaluations) == (36, 18)
    assert (first.cumulative_calls, last.cumulative_calls) == (36, 54)
    assert last.best_mean == winner.search.mean
    assert (last.low, last.high) == (winner.search.low, winner.search.high)
    assert first.best_mean < 0.55
    assert first.cumulative_usd == 9.0


def test_missing_answers_and_unknown_prices_count_alike_everywhere(told):
    lost: dict[str, Any] = {"status": "error", "fault": "infrastructure", "reward": None}
    told.generation(evaluated(OTHERS[1], SEARCH_IDS[6:8], 2, **lost), usd=None)
    result = told.collect()
    (row,) = [row for row in result.leaderboard if row.candidate_id == OTHERS[1].candidate_id]
    assert (row.n_cells, row.n_cases, row.n_failed) == (8, 6, 2)
    (same,) = [row for row in experiments(told.store, RUN) if row["n_failed"]]
    assert (same["n_cells"], same["n_cases"], same["n_failed"]) == (8, 6, 2)
    (point,) = told.store.rows("FROM learning_curve WHERE generation = 2")
    assert (point["cumulative_usd"], point["cumulative_unpriced"]) == (13.5, 2)
    assert "$13.50 and 2 calls of unknown price" in report_markdown(result)


def test_the_leaderboard_follows_the_posterior(finished):
    rows = finished().leaderboard
    assert [row.rank for row in rows] == [1, 2, 3, 4, 5, 6]
    assert rows[0].candidate_id == GOOD.candidate_id
    cautious = [row.cautious for row in rows]
    assert cautious == sorted(cautious, reverse=True)
    assert {row.n_cells for row in rows} == {6, 12}
    assert rows[0].label == "b · x 0.9"
    default = next(row for row in rows if row.candidate_id == DEFAULT.candidate_id)
    assert (default.origin, default.label) == ("default", "default")


def test_effects_are_those_of_the_whole_space_with_the_candidates_asked_counted(finished):
    effects = {effect.parameter: effect for effect in finished().effects}
    assert list(effects) == ["kind", "x"]
    kind = effects["kind"]
    assert [(point.label, point.n_candidates) for point in kind.points] == [
        ("a", 3),
        ("b", 1),
        ("c", 2),
    ]
    means = {point.label: point.mean for point in kind.points}
    assert means["b"] > means["c"] > means["a"]
    assert kind.is_sure
    assert kind.share is not None
    assert kind.share > 0.5
    assert [point.x for point in effects["x"].points][::11] == [0.0, 1.0]
    assert sum(point.n_candidates for point in effects["x"].points) == 6


def test_a_run_without_a_reward_has_no_winner(tmp_path):
    store = ParquetStore(tmp_path / "store")
    store.save_run(run_record())
    told = Told(store=store, search=SearchState())
    told.generation(
        evaluated(GOOD, SEARCH_IDS, 0, status="error", fault="evaluator", reward=None, metrics={})
    )
    result = told.collect()
    assert (result.winner, result.baseline, result.within) == (None, None, None)
    assert (result.leaderboard, result.effects) == ((), ())
    assert result.curve[0].best_mean is None
    assert RunResult.from_json(result.to_json()) == result


def test_a_collected_result_survives_json_and_can_be_reported(finished, told, tmp_path):
    result = finished()
    assert RunResult.from_json(canonical_json(result.to_json())) == result
    assert "| held-out cases | measured | 4 |" in report_markdown(result)
    assert report_html(result).count("data-plot=") == 6
    written = write_results(result, told.store, CONFIGURATION, tmp_path, cases=CASES)
    assert len(written.files) == 8
