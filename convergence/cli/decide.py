"""``promote``, ``rollback``, ``gates``: champions and the gates' decisions."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.options import EXIT_NO
from convergence.finished_runs import CandidateNames
from convergence_core.caveats import CASES, TRAFFIC
from convergence_core.errors import RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.ports import RunRecord
    from convergence_core.result import RunResult
    from tasks.store.runtime.rows import Champion, GateLook, StoredAlarm


def promote(  # noqa: PLR0917 - Typer's options
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Label or id. Default: the latest finished run."),
    ] = None,
    yes: options.Yes = False,
    holdback: Annotated[
        float,
        typer.Option(
            min=0.01, max=0.5, help="Share of the requests that the current champion keeps."
        ),
    ] = 0.1,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.5, help="Drop in mean reward to tolerate before rolling back."
        ),
    ] = 0.0,
    serve: Annotated[bool, typer.Option(help="Activate it for requests, under a guard.")] = True,
    agent_type: Annotated[str, typer.Option(help="Agent type of the requests.")] = "default",
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Put a run's settings into production as the champion, if the promotion gate allows it.

    Requests get them as an arm whose prior is the run's measurement. The former champion, or the
    defaults, keep a share of the requests until a guard confirms the promotion or rolls it back.

    Exit code 100: gate not passed, or not decided yet.
    """
    from tasks.run.adoption import adopt, describe_obstacle, obstacle  # noqa: PLC0415 - brings NumPy
    from tasks.run.run import FLOW_RUN_TAG  # noqa: PLC0415 - as above

    record = _finished(store, config, run)
    result = _result_of(record)
    _check_gate(result)
    winner = result.winner
    assert winner is not None  # noqa: S101 - the gate has passed
    arm = rival = None
    with locations.open_runtime(store, config) as state:
        why = obstacle(state, result)
        if why is None:
            console.confirm(f"Make {winner.label} the champion of {result.system}?", yes=yes)
            arm, rival = adopt(
                state,
                result,
                reason=f"promoted from {result.label}",
                serve=serve,
                agent_type=agent_type,
                holdback=holdback,
                tolerance=tolerance,
            )
    if why is not None:
        if why == "is_champion":
            _answer(promoted=False, run=result.label, decision="promote")
        console.say(describe_obstacle(why, result))
        if why == "changed":
            raise typer.Exit(EXIT_NO)
    else:
        _answer(
            promoted=True,
            run=result.label,
            decision="promote",
            candidate_id=winner.candidate_id,
            params=winner.params,
            arm_id=arm,
            watched_against=rival,
        )
        console.say(f"{winner.label} is the champion of {result.system} now.")
        if rival is not None:
            console.say(
                f"Live. The old settings keep {holdback:.0%} of the requests as control; "
                "`convergence fold` compares them."
            )
    _release(record.tags.get(FLOW_RUN_TAG))


def _check_gate(result: "RunResult") -> None:
    """Exit with 100 unless the promotion gate decided promote."""
    from convergence_core.result import verdict_of  # noqa: PLC0415 - with its only user

    gate, verdict = result.gate, verdict_of(result)
    if gate is None or result.winner is None:
        console.say(
            f"The gate did not run in {result.label}: it needs new settings, held-out cases, and a "
            "champion or defaults to compare them with."
        )
    elif gate.decision == "promote":
        return
    else:
        _answer(promoted=False, run=result.label, decision=gate.decision)
        console.say(f"{verdict.sentence} {verdict.next_step} {CASES}")
    raise typer.Exit(EXIT_NO)


def rollback(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="api.name of the system.")],
    yes: options.Yes = False,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Restore the previous champion."""
    from tasks.run.adoption import previous_of, roll_back  # noqa: PLC0415 - brings NumPy

    with locations.open_runtime(store, config) as state:
        _, former = previous_of(state, system)
        name = CandidateNames(state.root)(former.candidate_id)
        console.confirm(f"Restore {name} as champion of {system}?", yes=yes)
        roll_back(state, system)
    _answer(system=system, candidate_id=former.candidate_id, params=former.params)
    console.say(f"{name} is the champion of {system} again.")


def _evidence_of(look: Any) -> str:
    from convergence_core.result.number_text import evidence  # noqa: PLC0415 - its package brings NumPy

    return evidence(look.log_e, look.log_threshold)


def _look_columns(names: CandidateNames) -> dict[str, Callable[[Any], str]]:
    return {
        "when": lambda look: _minute(look.created_us),
        "system": lambda look: look.system,
        "kind": lambda look: look.kind,
        "configuration": lambda look: names(look.candidate_id),
        "against": lambda look: names(look.champion_id),
        "verdict": lambda look: look.decision,
        "n": lambda look: f"{look.n:,}",
        "evidence": _evidence_of,
    }


def gates(
    system: Annotated[
        str | None, typer.Argument(metavar="[SYSTEM]", help="Show only this system (api.name).")
    ] = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """List decisions of the promotion gates, drift alarms, and the champion of each system."""
    from tasks.store.runtime.promotions import champion_of, looks  # noqa: PLC0415 - SQLite
    from tasks.store.runtime.watches import alarms  # noqa: PLC0415 - as above

    with locations.open_runtime(store, config) as state:
        verdicts, drifts = looks(state, system), alarms(state, system)
        names = sorted({look.system for look in verdicts} | ({system} if system else set()))
        champions = {name: champion_of(state, name) for name in names}
        root = state.root
    console.emit(
        {"looks": verdicts, "alarms": drifts, "champions": champions},
        lambda: _show_gates(verdicts, drifts, champions, root),
    )


def _show_gates(
    verdicts: "Sequence[GateLook]",
    drifts: "Sequence[StoredAlarm]",
    champions: "Mapping[str, Champion | None]",
    root: Path,
) -> None:
    for alarm in drifts:
        console.answer(
            f"Drift {_minute(alarm.created_us)}: {alarm.what} of {alarm.system}/{alarm.agent_type} "
            f"went from {alarm.before:.3g} to {alarm.after:.3g}"
        )
    if not verdicts:
        console.say("No promotion gate has decided yet.")
        return
    names = CandidateNames(root)
    console.show(console.table_of(verdicts, _look_columns(names), right=("n", "evidence")))
    if any(look.kind != "holdout" for look in verdicts):
        console.answer(f"Verdicts on traffic: {TRAFFIC}")
    if any(look.kind == "holdout" for look in verdicts):
        console.answer(f"Verdicts on held-out cases: {CASES}")
    for name, champion in champions.items():
        text = (
            "none yet"
            if champion is None
            else f"{names(champion.candidate_id)} ({champion.reason})"
        )
        console.answer(f"Champion of {name}: {text}")


def _minute(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M}"


def _finished(store: Path | None, config: Path | None, name: str | None) -> "RunRecord":
    """Return the record of a finished run.

    Raises:
        RunNotFoundError: there is none.
    """
    opened = locations.open_store(store, config)
    records = [opened.run(name)] if name is not None else opened.runs()
    record = next((record for record in records if record.summary_json is not None), None)
    if record is None:
        raise RunNotFoundError(
            f"RUN must name a finished run, but got {name or 'none in this store'}. "
            "Finish a stopped run with `convergence resume`."
        )
    return record


def _result_of(record: "RunRecord") -> "RunResult":
    from convergence_core.result import RunResult  # noqa: PLC0415 - brings pydantic

    return RunResult.from_json(record.summary_json or "")


def _release(flow_run_id: str | None) -> None:
    """Continue the flow run that waits for this promotion, if Prefect's server is known."""
    from deployments.nightly.services import release  # noqa: PLC0415 - only where one may wait

    if flow_run_id is None:
        return
    state = release(flow_run_id)
    if state == "released":
        console.say("The waiting flow run continues.")
    elif state == "unreachable":
        console.say("Prefect's server does not answer: the flow run still waits.")


def _answer(**value: object) -> None:
    """Print a JSON object with ``--json``, else nothing."""
    if console.settings.json:
        console.answer_json(value)
