"""A whole run in this process, step by step as the flow takes it, without Prefect's server."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from convergence_core.result import RunResult
from tasks.inputs.loader import load
from tasks.run.conclusion import choose_finalists, conclude
from tasks.run.opener import prepare_run
from tasks.run.run import Run
from tasks.steps import evaluate, learn, sample_candidates, save_generation
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore


def search(config: Path) -> RunResult:
    """Begin a run and bring it to its end."""
    return finish(prepare_run(load(config)))


def finish(run: Run) -> RunResult:
    """Bring a run to its end; it is closed then."""
    with run, ThreadPoolExecutor(64) as pool:
        while run.should_continue():
            number = run.next_generation
            plan = sample_candidates.fn(run.run_id, number)
            ask = partial(evaluate.fn, run_id=run.run_id, generation=number)
            trials = list(pool.map(ask, plan.assignments))
            learned = learn.fn(run.run_id, number, trials)
            save_generation.fn(run.run_id, number, learned)
        finalists = choose_finalists(run)
        finally_ = partial(evaluate.fn, run_id=run.run_id, generation=None)
        return conclude(run, list(pool.map(finally_, finalists)))


def put_into_production(folder: Path, params: dict[str, object]) -> Champion:
    """Let settings be the champion of the project in a folder; return it."""
    name = load(folder / "optimization.yaml").space.candidate_id(params)  # type: ignore[arg-type]
    champion = Champion(
        system="known", candidate_id=name, params=params, run_id=None, reason="", created_us=1
    )
    with RuntimeStore(folder / "convergence-data") as store:
        set_champion(store, champion)
    return champion
