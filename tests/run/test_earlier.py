"""A run that starts from earlier ones: which they are, what it says of them, and its resume."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from convergence_core.errors import ResumeError, RunInterruptedError
from convergence_core.events import Event, RunStarted
from convergence_core.result import RunResult
from tasks.run.prior_runs import TAG
from tasks.run.run import Run
from tasks.serving.offers import offer_of
from tasks.serving.production import TAG as PRODUCTION
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.bandits import Bandit
from tests.support.optimizations import write_project
from tests.support.paid_runs import STORE, begin, evaluate, go_on, play, publish

ON = {"optimization__warm_start": {"enabled": True, "runs": 2}}


def project(folder: Path, **overrides: object) -> Path:
    write_project(folder, **{**ON, "output__formats": ["json"], **overrides})
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project without a run."""
    return project(tmp_path / "project")


def candidates(run: Run) -> list[tuple[str, str]]:
    return [(m.candidate.candidate_id, m.candidate.origin) for m in run.state.search.archive]


def stop_after(run: Run, n_generations: int) -> None:
    """Take an open run through some generations, then interrupt it as a user does."""

    def interrupted() -> None:
        with run:
            for generation in range(n_generations):
                publish(run, run.learn(evaluate(run, run.ask().assignments, generation)))
            run.stop()
            run.check_stop()

    with pytest.raises(RunInterruptedError):
        interrupted()


def facts(result: RunResult) -> str | None:
    return result.facts.get("earlier runs")


def test_second_run_asks_the_firsts_winner_again_and_says_what_it_starts_from(tmp_path: Path):
    size = {"population_size": 6, "generations": 2}
    folder = project(tmp_path / "project", optimization__evolution=size)
    events: list[Event] = []
    first = begin(folder)
    assert TAG not in first.record.tags
    assert facts(play(first)) is None
    second = begin(folder, on_event=events.append)
    assert second.record.tags[TAG] == f"{first.run_id}@2"
    winner = first.study.recommend(first.state)
    assert winner is not None
    elites = [a.candidate for a in second.ask().assignments if a.candidate.origin == "elite"]
    assert winner.candidate_id in {candidate.candidate_id for candidate in elites}
    result = play(second)
    n = len(first.state.search.archive)
    begun = next(event for event in events if isinstance(event, RunStarted))
    assert begun.warm_start == f"starts from 1 earlier run ({n} candidates)"
    told = facts(result)
    assert told is not None
    assert told.startswith(f"{begun.warm_start}; earlier runs: discount learned 0.")


@pytest.mark.slow
def test_a_resume_sees_the_past_its_run_began_with(folder: Path, tmp_path: Path):
    stopped = begin(folder)
    stop_after(stopped, 2)
    shutil.copytree(folder, tmp_path / "unbroken")
    unbroken = begin(tmp_path / "unbroken")
    play(unbroken)

    broken = begin(folder)
    assert broken.record.tags[TAG] == unbroken.record.tags[TAG] == f"{stopped.run_id}@2"
    stop_after(broken, 1)
    play(go_on(folder, stopped.run_id))  # the earlier run goes on
    play(begin(folder))  # and another one ends in between
    resumed = go_on(folder, broken.run_id)
    assert resumed.past.start.winners == unbroken.past.start.winners
    play(resumed)
    assert candidates(resumed) == candidates(unbroken)


@pytest.mark.slow
def test_an_earlier_run_that_is_gone_is_an_error_that_says_so(folder: Path):
    play(begin(folder))
    second = begin(folder)
    stop_after(second, 1)
    store = ParquetStore(folder / STORE)
    record = store.run(second.run_id)
    store.save_run(replace(record, tags={**record.tags, TAG: f"{'0' * 25}Z@3"}))
    with pytest.raises(ResumeError, match="no longer holds"):
        go_on(folder, second.run_id)


def served(folder: Path, params: dict[str, object], rewards: list[float], arm: str = "a") -> None:
    """Let requests to one arm earn these rewards."""
    with RuntimeStore(folder / STORE) as store:
        store.offer("known", "default", [offer_of(params, arm)], trust=0.5)  # type: ignore[arg-type]
        bandit = Bandit(store, "known")
        for reward in rewards:
            bandit.update(bandit.select("u").decision_id, reward)
        store.retire("known", "default", arm)


@pytest.mark.slow
def test_production_counts_beside_the_run_its_arm_came_from_and_is_told(folder: Path):
    first = begin(folder)
    play(first)
    winner = first.study.recommend(first.state)
    assert winner is not None
    alone = begin(folder)
    best, next_best, *_ = alone.past.start.winners
    alone.close()
    served(folder, dict(best), [0.0] * 100)
    served(folder, dict(next_best), [1.0] * 50, arm="next")
    served(folder, {"x": 7.0}, [1.0] * 3, arm="another space")
    second = begin(folder)
    assert second.record.tags[PRODUCTION] == "153"
    production = second.past.production
    assert (production.n_arms, production.n_rewards) == (2, 150)
    assert (production.n_counted, production.n_dropped) == (40 + 25, 1)
    assert second.past.start.winners[0] == next_best, "requests preferred it"
    told = facts(play(second))
    assert told is not None
    assert "production: 150 rewards of 2 arms, of which 65 count (discount 0.5, at most 40" in told
    assert "1 more do not fit" in told
    assert told.startswith("starts from 1 earlier run ")


def test_a_resume_sees_the_production_that_the_run_began_with(folder: Path):
    served(folder, {"x": 0.9, "kind": "b"}, [1.0] * 10)
    run = begin(folder)
    stop_after(run, 1)
    served(folder, {"x": 0.9, "kind": "b"}, [0.0] * 30)
    again = go_on(folder)
    assert again.past.production == run.past.production
    assert again.past.production.n_rewards == 10
