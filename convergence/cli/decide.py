"""``promote``, ``rollback``, ``gates``: champions and the gates' decisions."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.options import EXIT_NO
from convergence.finished_runs import CandidateNames, finished_run
from convergence_core.caveats import CASES, TRAFFIC
from convergence_core.records import fields_of

if TYPE_CHECKING:
    from convergence_core.result import RunResult

MOST_REASON = 500
"""Maximum stored characters of a reviewer's reason."""


def promote(  # noqa: PLR0917 - Typer's options
    run: options.FinishedRun = None,
    yes: options.Yes = False,
    ramp: Annotated[
        str,
        typer.Option(metavar="PERCENTS", help="Its shares of the requests, step by step."),
    ] = "5,25,50,100",
    holdback: Annotated[
        float,
        typer.Option(
            min=0.01, max=0.5, help="Share that the current champion keeps at the last step."
        ),
    ] = 0.1,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0.0, max=0.5, help="Drop in mean reward to tolerate before rolling back."
        ),
    ] = 0.0,
    unproven: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            help="Promote settings that are likely better, but not proven. REASON is kept.",
        ),
    ] = None,
    serve: Annotated[bool, typer.Option(help="Activate it for requests, under a ramp.")] = True,
    agent_type: Annotated[str, typer.Option(help="Agent type of the requests.")] = "default",
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Put a run's settings into production as the champion, if the promotion gate allows it.

    Requests get them as an arm whose prior is the run's measurement. Their share rises step by step
    while no guardrail gets worse against the former champion, or the defaults; else they roll back.
    Linear arms have no ramp, control or rollback: use a system of `kind: beta` for these.

    Exit code 100: gate not passed, or not decided yet; `--unproven` overrides the latter.
    """
    from convergence_core.result import RunResult  # noqa: PLC0415 - brings pydantic
    from tasks.run.adoption import adopt, describe_obstacle, obstacle  # noqa: PLC0415 - brings NumPy
    from tasks.run.run import FLOW_RUN_TAG  # noqa: PLC0415 - as above
    from tasks.serving.promotion import read_ramp  # noqa: PLC0415 - as above
    from tasks.store.runtime.rows import shares_text  # noqa: PLC0415 - brings pydantic

    record = finished_run(locations.open_store(store, config), run)
    result = RunResult.from_json(record.summary_json or "")
    steps = read_ramp(ramp, holdback)
    reason = _grounds(result, unproven)
    best = result.best
    assert best is not None  # noqa: S101 - the gate compared it
    arm = rival = group = None
    decision = None if result.gate is None else result.gate.decision
    with locations.open_runtime(store, config) as state:
        why = obstacle(state, result)
        if why is None:
            console.confirm(f"Make {best.label} the champion of {result.system}?", yes=yes)
            arm, rival = adopt(
                state,
                result,
                reason=reason,
                serve=serve,
                agent_type=agent_type,
                holdback=holdback,
                tolerance=tolerance,
                ramp=steps,
            )
            group = state.group(result.system, agent_type)
    answered = {"promoted": why is None, "run": result.label, "decision": decision}
    if why is None:
        answered |= {
            **fields_of(best, "candidate_id", "params"),
            "arm_id": arm,
            "watched_against": rival,
        }
        text = f"{best.label} is the champion of {result.system} now."
        if rival is not None:
            shares = shares_text(steps, holdback)
            live = f"for {shares[0]} of the requests; the old settings get the rest as control"
            if not steps:
                live = (
                    f"now; the old settings keep {100 * holdback:.4g} % of the requests as control"
                )
            text += f"\nLive {live}. `convergence fold` compares them: it "
            text += f"advances to {', '.join(shares[1:])}, or " if steps else "confirms, or "
            text += "rolls back. `convergence gates` shows where it is."
        elif arm is not None and group is not None and group.kind == "linear":
            text += (
                "\nIts arms are linear, which have no ramp: the bandit shares the requests at once. To undo, run "
                f"`convergence arms retire {result.system} {arm}`; for a ramp, use a system of `kind: beta`."
            )
    else:
        text = describe_obstacle(why, result)
    console.emit(answered, text)
    if why == "changed":
        raise typer.Exit(EXIT_NO)
    _release(record.tags.get(FLOW_RUN_TAG))


def _grounds(result: "RunResult", unproven: str | None) -> str:
    """Return the reason to promote the search's best, for the list of champions.

    Exits with 100 unless the gate decided promote, or ``unproven`` accepts a probable improvement.
    """
    from convergence_core.result import verdict_of  # noqa: PLC0415 - with its only user
    from tasks.report.phrases import gate_evidence  # noqa: PLC0415 - as above
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import one_line  # noqa: PLC0415 - as above

    gate, verdict = result.gate, verdict_of(result)
    if gate is None or result.best is None:
        console.say(
            f"The gate did not run in {result.label}: it needs new settings, held-out cases, and a "
            "champion or defaults to compare them with."
        )
    elif gate.decision == "promote":
        return f"promoted from {result.label}"
    elif unproven and unproven.strip() and verdict.kind in {"likely", "cheaper"}:
        console.say(f"Not proven: {gate_evidence(gate)}.", style="yellow")
        return (
            f"promoted from {result.label} by {options.account_name()}, not proven ({gate_evidence(gate)}): "
            f"{one_line(unproven, MOST_REASON, redacted_text)}"
        )
    else:
        text = f"{verdict.sentence} {verdict.next_step} {CASES}"
        if verdict.kind in {"likely", "cheaper"}:
            text += (
                "\nTo use the settings found without proof: "
                f"`convergence promote {result.label} --unproven REASON`."
            )
        console.emit({"promoted": False, "run": result.label, "decision": gate.decision}, text)
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
        name = CandidateNames(state.root).of(former.candidate_id, former.params)
        console.confirm(f"Restore {name} as champion of {system}?", yes=yes)
        roll_back(state, system)
    restored = {"system": system, **fields_of(former, "candidate_id", "params")}
    console.emit(restored, f"{name} is the champion of {system} again.")


def _look_columns(names: CandidateNames) -> dict[str, Callable[[Any], str]]:
    from convergence_core.result.number_text import evidence  # noqa: PLC0415 - its package brings NumPy

    return {
        "when": lambda look: _minute(look.created_us),
        "system": lambda look: look.system,
        "kind": lambda look: look.kind,
        "configuration": lambda look: names(look.candidate_id),
        "against": lambda look: names(look.champion_id),
        "verdict": lambda look: look.decision,
        "observations": lambda look: f"{look.n:,}",
        "evidence (of needed)": lambda look: evidence(look.log_e, look.log_threshold),
    }


def gates(
    system: options.System = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """List decisions of the promotion gates, alarms, ramps, and the champion of each system."""
    from tasks.report.phrases import ledgers  # noqa: PLC0415 - brings NumPy
    from tasks.store.runtime.promotions import champion_of, looks  # noqa: PLC0415 - SQLite
    from tasks.store.runtime.watches import alarms, guards_of  # noqa: PLC0415 - as above

    with locations.open_runtime(store, config) as state:
        verdicts, alarm_rows = looks(state, system), alarms(state, system)
        names = sorted({look.system for look in verdicts} | ({system} if system else set()))
        champions = {name: champion_of(state, name) for name in names}
        served = [system] if system else sorted({name for name, _ in state.systems()})
        watched = [guard for name in served for guard in guards_of(state, name)]
        root = state.root
    summary = {
        "looks": verdicts,
        "alarms": alarm_rows,
        "guards": watched,
        "champions": champions,
        "alpha_left": ledgers(verdicts),
    }
    console.emit(summary, lambda: _show_gates(summary, CandidateNames(root)))


def _show_gates(summary: "Mapping[str, Any]", names: CandidateNames) -> None:
    verdicts = summary["looks"]
    for alarm in summary["alarms"]:
        console.answer(f"{_minute(alarm.created_us)} {names(alarm.sentence)}")
    for guard in summary["guards"]:
        console.answer(names(guard.sentence({})))
    if not verdicts:
        console.say("No promotion gate has decided yet.")
        return
    console.show(
        console.table_of(
            verdicts, _look_columns(names), right=("observations", "evidence (of needed)")
        )
    )
    if any(look.kind != "holdout" for look in verdicts):
        console.answer(f"Assumptions on traffic: {TRAFFIC}")
    if any(look.kind == "holdout" for look in verdicts):
        console.answer(f"Assumptions on held-out cases: {CASES}")
    for text in summary["alpha_left"].values():
        console.answer(text)
    for name, champion in summary["champions"].items():
        text = (
            "none yet"
            if champion is None
            else f"{names.of(champion.candidate_id, champion.params)} ({names(champion.reason)})"
        )
        console.answer(f"Champion of {name}: {text}")


def _minute(time_us: int) -> str:
    return f"{datetime.fromtimestamp(time_us / 1e6, UTC):%Y-%m-%d %H:%M}"


def _release(flow_run_id: str | None) -> None:
    """Continue the flow run that waits for this promotion, if Prefect's server is known."""
    from deployments.nightly.services import release  # noqa: PLC0415 - only if one may wait

    if flow_run_id is None:
        return
    state = release(flow_run_id)
    if state == "released":
        console.say("The waiting flow run continues.")
    elif state == "unreachable":
        console.say("Prefect's server does not answer: the flow run still waits.")
