"""Sealed held-out cases of language games: opened once, at the end.

No run, test or round asks a sealed case, and no prompt holds its text. When they are opened, two configurations
answer them: the incumbent, and the one with which the first round with these sealed cases began. What they say
of the difference was not used to choose anything; so it is the one number of the games that nobody has selected.
"""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from convergence_core.errors import LeaseHeldError
from convergence_core.games.held_out import HeldOutError
from convergence_core.games.round_records import PastRound, SealedResult
from convergence_core.ports import Row
from convergence_core.records import Assignment, Candidate, Cell, Trial, short_id
from convergence_core.result.number_text import plural
from convergence_core.search.recommend import mean_interval, paired_difference
from convergence_core.search.study import limit_reached
from tasks.games.round_rows import candidate_row, past_rounds
from tasks.games.sealed_openings import (
    ANEW,
    opening_among,
    sealed_results,
    store_of,
    system_name,
)
from tasks.inputs.loader import Loaded
from tasks.report.candidates import Final as Measured
from tasks.run.assessment import BUDGET_REACHED, champion_of_test, interrupted
from tasks.run.champions import champion_tag, tagged_champion
from tasks.run.opener import prepare_run
from tasks.run.resources import Caller
from tasks.run.run import Run
from tasks.store import Lease, ParquetStore
from tasks.store.tables.interrupted_runs import as_they_are
from tasks.store.tables.lineage import GAMES_TAG, PARTS, SEALED_TAG
from tasks.store.tables.rows import generation_row, payload_rows

LEAST: Final = 2
"""Cases that are compared: one alone tells no interval."""
_DONE: Final = "the sealed cases were opened"
_PARAMS: Final = """
    SELECT c.params_json FROM candidates c JOIN runs r USING (run_id)
    WHERE r.name IN ($system, $system || '.games') AND c.candidate_id = $candidate LIMIT 1"""
_ASKED: Final = """
    SELECT DISTINCT e.case_id FROM evaluations e JOIN runs r USING (run_id)
    WHERE r.name IN (SELECT unnest($systems)) AND e.case_id IN (SELECT unnest($cases))
      AND e.started_at >= (SELECT started_at FROM runs WHERE run_id = $first)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpeningPlan:
    """What is asked when the sealed cases are opened."""

    system: str
    rounds: tuple[PastRound, ...]
    """With these sealed cases, the oldest first; at least one."""
    first: Candidate
    """With which the first of them began."""
    incumbent: Candidate
    case_ids: tuple[str, ...]
    seen: tuple[str, ...]
    """Sealed cases that were asked since the first round all the same, and are left out."""


def plan_opening(loaded: Loaded, *, mock_url: str | None = None) -> OpeningPlan:
    """Return what would be asked if the sealed cases were opened now; nobody is asked.

    Raises:
        HeldOutError: nothing is sealed, no round was played with it, it was opened before, or there is nothing to
            compare.
    """
    store, system = store_of(loaded), system_name(loaded, mock_url)
    _check_no_rounds_go_on(store, system)
    if not loaded.sealed_cases:
        raise HeldOutError(
            "no held-out case is sealed. Write e.g. `society.games.sealed_share: 0.5` before the first round."
        )
    results = sealed_results(store, system) if store.exists else []
    if (done := opening_among(loaded, _told(store, system, results))) is not None:
        raise HeldOutError(_once(done))
    sealed = {case.case_id for case in loaded.sealed_cases}
    rounds = _rounds(store, system, sealed, results)
    asked = _asked_since(store, system, rounds[0], sealed)
    case_ids = tuple(one.case_id for one in loaded.sealed_cases if one.case_id not in asked)
    if len(case_ids) < LEAST:
        raise HeldOutError(
            f"{plural(len(asked), 'sealed case')} of {len(sealed)} were asked since the first round, so fewer than "
            f"{LEAST} are left to compare by. {ANEW}"
        )
    first, incumbent = _first(store, system, loaded, rounds[0]), _incumbent(store, system, loaded)
    if incumbent is None or incumbent.candidate_id == first.candidate_id:
        raise HeldOutError(
            "the incumbent is the configuration with which the rounds began, so nothing would be compared; the "
            "cases stay sealed. Open them once another one is the champion."
        )
    return OpeningPlan(
        system=system,
        rounds=rounds,
        first=first,
        incumbent=incumbent,
        case_ids=case_ids,
        seen=tuple(sorted(asked)),
    )


def open_sealed(loaded: Loaded, *, mock_url: str | None = None) -> SealedResult:
    """Ask the sealed cases of the incumbent and of the configuration with which the rounds began, once.

    What was interrupted goes on, and pays nothing twice; nothing is told before every answer is there.

    Raises:
        HeldOutError: as ``plan_opening``; or too few answers came, and the cases stay sealed.
        LeaseHeldError: another process opens them.
        RunInterruptedError: it was asked to stop.
    """
    plan = plan_opening(loaded, mock_url=mock_url)
    caller: Caller = {} if mock_url is None else {"mock_url": mock_url}
    run = interrupted(loaded, caller, SEALED_TAG) or prepare_run(loaded, part=SEALED_TAG, **caller)
    with _no_rounds_begin(store_of(loaded), plan.system), run:
        run.begin_final()
        incumbent = champion_of_test(run) or run.study.baseline or plan.incumbent
        with ThreadPoolExecutor(2) as threads:
            trials = [*threads.map(lambda one: _trial(run, one, plan), (plan.first, incumbent))]
        run.check_stop()
        found = _result(run, plan, incumbent, trials)
        if found is not None:
            _publish(run, trials, found)
            run.save("done", _DONE)
            return found
        limit = limit_reached(trials)
        run.save("stopped", "answers are missing" if limit is None else BUDGET_REACHED)
    why = "too few answers have a reward (network, server or metric)" if limit is None else limit
    raise HeldOutError(
        f"{why.partition(' Raise it')[0].rstrip('.')}. Nothing was told, and the cases stay sealed: run "
        f"`convergence games open` again{'' if limit is None else ' with a larger budget'}."
    )


def _check_no_rounds_go_on(store: ParquetStore, system: str) -> None:
    """Raise if an optimization is under way that plays rounds of games: they would follow what was opened."""
    if not store.exists:
        return
    for record in as_they_are(store, store.runs(system)):
        society = json.loads(record.config_json).get("society") or {}
        if record.status == "running" and (society.get("games") or {}).get("every") is not None:
            raise HeldOutError(
                f"run {record.label} is under way and plays rounds of games. Wait until it has ended, or stop it; "
                "then open the sealed cases."
            )


@contextmanager
def _no_rounds_begin(store: ParquetStore, system: str) -> Iterator[None]:
    """Keep optimizations of a system from beginning in the block; one that plays no rounds may go on.

    Raises:
        HeldOutError: one that plays rounds began meanwhile.
    """
    with ExitStack() as held:
        try:
            held.enter_context(Lease(store.path, system).acquire())
        except LeaseHeldError:
            _check_no_rounds_go_on(store, system)
        yield


def _once(done: SealedResult) -> str:
    return (
        f"the sealed cases were opened before, after round {done.last_round + 1}; what they say counts once: "
        f"`convergence games show`. {ANEW}"
    )


def _told(store: ParquetStore, system: str, results: Sequence[SealedResult]) -> list[SealedResult]:
    """Return the openings whose run has ended: one that was killed after it was published goes on."""
    done = {
        one.run_id for one in store.runs(f"{system}.{SEALED_TAG}") if one.status == "done"
    } if results else set()  # fmt: skip
    return [one for one in results if one.run_id in done]


def _rounds(
    store: ParquetStore, system: str, sealed: set[str], results: Sequence[SealedResult]
) -> tuple[PastRound, ...]:
    name = f"{system}.{GAMES_TAG}"
    latest = next(iter(store.runs(name)), None) if store.exists else None
    if latest is not None and latest.status != "done":
        raise HeldOutError(
            f"round {latest.label} is not finished. `convergence games run` ends it; then open the sealed cases."
        )
    past = past_rounds(store, system) if store.exists else []
    before = max((one.last_round for one in results), default=-1)
    found = tuple(
        one for one in past if one.round_number > before and not sealed.isdisjoint(one.sealed)
    )
    if not found:
        raise HeldOutError(
            "no round of games was played with these sealed cases. Play one with `convergence games run`: the "
            "configuration with which it begins is what the incumbent is compared with."
        )
    return found


def _asked_since(
    store: ParquetStore, system: str, first: PastRound, sealed: set[str]
) -> frozenset[str]:
    """Return the sealed cases that count no more: they were no sealed ones, or asked, since a round."""
    parts = sorted(PARTS - {SEALED_TAG})
    given = {
        "systems": [system, *(f"{system}.{part}" for part in parts)],
        "cases": sorted(sealed),
        "first": first.run_id,
    }
    asked = {str(row["case_id"]) for row in store.rows(_ASKED, given)}
    return frozenset(asked | (sealed - first.sealed))


def _first(store: ParquetStore, system: str, loaded: Loaded, first: PastRound) -> Candidate:
    name = {"system": system, "candidate": first.look.candidate_id}
    rows = store.rows(_PARAMS, name)
    if not rows:
        raise HeldOutError(
            f"round {first.round_number + 1} began without an incumbent, so there is nothing to compare with. "
            "Write `default:` of the parameters, play a round with other sealed cases, and open those."
        )
    try:
        return loaded.space.candidate(json.loads(str(rows[0]["params_json"])), origin="default")
    except ValueError:
        raise HeldOutError(
            f"the configuration with which round {first.round_number + 1} began, "
            f"{short_id(first.look.candidate_id)}, must be in the search space, but is not. Put back what was "
            "taken out of `search_space`."
        ) from None


def _incumbent(store: ParquetStore, system: str, loaded: Loaded) -> Candidate | None:
    space, params = loaded.space, loaded.space.baseline()
    champion = tagged_champion(champion_tag(Path(store.path), system, space), space)
    if champion is not None or params is None:
        return champion
    return space.candidate(params, origin="default")


def _trial(run: Run, candidate: Candidate, plan: OpeningPlan) -> Trial:
    cells = tuple(
        Cell(candidate_id=candidate.candidate_id, case_id=one, repeat=repeat, role="holdout")
        for one in plan.case_ids
        for repeat in range(run.study.schedule.repeats)
    )
    return run.evaluate(
        Assignment(candidate=candidate, cells=cells, label="opens the sealed cases"), 0
    )


def _result(
    run: Run, plan: OpeningPlan, incumbent: Candidate, trials: Sequence[Trial]
) -> SealedResult | None:
    """Return what was found; ``None``: a limit was reached, or fewer than ``LEAST`` cases are compared."""
    measured = Measured.of(trials, run.loaded.cases, run.study.confidence_level)
    first, last = (
        measured.rewards(one.candidate_id, "holdout") for one in (plan.first, incumbent)
    )
    both = first.keys() & last.keys()
    how: dict[str, Any] = {"level": measured.level, "weights": measured.weights}
    gap = paired_difference(last, first, groups=measured.groups, **how)
    if limit_reached(trials) is not None or gap is None or len(both) < LEAST:
        return None
    first_mean, mean = (
        mean_interval({case: found[case] for case in both}, groups=measured.groups, **how)
        for found in (first, last)
    )
    assert first_mean is not None and mean is not None  # noqa: S101, PT018 - of the cases of the gap
    totals = run.journal.totals(run.run_id)
    return SealedResult(
        run_id=run.run_id,
        first_round=plan.rounds[0].round_number,
        last_round=plan.rounds[-1].round_number,
        first_id=plan.first.candidate_id,
        candidate_id=incumbent.candidate_id,
        case_ids=plan.case_ids,
        n_compared=len(both),
        first_mean=first_mean.mean,
        mean=mean.mean,
        difference=gap.mean,
        low=gap.low,
        high=gap.high,
        level=gap.level,
        cost_usd=None if totals.n_unpriced else totals.cost_usd or 0.0,
    )


def _publish(run: Run, trials: Sequence[Trial], found: SealedResult) -> None:
    evaluations = [one for trial in trials for one in trial.evaluations]
    row: Row = {name: getattr(found, name) for name in SealedResult.__dataclass_fields__}
    marker = generation_row(
        run.run_id,
        0,
        evaluations,
        run.state.to_checkpoint(),
        flow_run_id=None,
        partial=False,
        fallback_us=run.record.started_us,
    )
    tables: dict[str, Sequence[Row]] = {
        "payloads": payload_rows(run.run_id, evaluations),
        "candidates": [candidate_row(run.run_id, trial.candidate) for trial in trials],
        "evaluations": run.evaluation_rows(evaluations),
        "attempts": run.journal.attempts(run.run_id, generation=0),
        "game_openings": [{**row, "generation": 0, "case_ids": [*found.case_ids]}],
        "generations": [marker],
    }
    run.store.publish(run.run_id, 0, tables)
