"""``promote``, ``rollback``, ``gates``: who is in production, and on what evidence."""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence.cli import console, locations
from convergence_core.caveats import CASES, TRAFFIC
from convergence_core.errors import ConfigurationError, Problem, RunNotFoundError

if TYPE_CHECKING:
    from convergence_core.ports import RunRecord
    from convergence_core.result import RunResult
    from tasks.store.runtime.runtime_store import RuntimeStore

JSON_HELP = "Answer as JSON."
YES_HELP = "Do not ask."
EXIT_GATE = 100
"""The gate says no."""


def promote(  # noqa: PLR0917 - Typer's options
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Label or id. Default: the latest finished run."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)] = False,
    serve: Annotated[
        bool, typer.Option(help="Put it on offer to requests, under a guard.")
    ] = True,
    agent_type: Annotated[str, typer.Option(help="Whose requests.")] = "default",
    holdback: Annotated[
        float,
        typer.Option(
            min=0.01, max=0.5, help="Share of the requests that the former champion keeps."
        ),
    ] = 0.1,
    tolerance: Annotated[
        float,
        typer.Option(min=0.0, max=0.5, help="How much worse in mean reward is still no rollback."),
    ] = 0.0,
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Make a run's candidate the champion, if the promotion gate says so.

    It is put on offer to requests with what the night measured as its prior. The former champion, or
    the defaults, keep a share of them, until a guard confirms the promotion or rolls it back.

    Exit code 100: it says no, or does not know yet.
    """
    console.settings.json = as_json
    from tasks.report.phrases import counted  # noqa: PLC0415 - as above
    from tasks.run.adoption import adopt, obstacle, told  # noqa: PLC0415 - brings NumPy
    from tasks.run.run import FLOW_RUN_TAG  # noqa: PLC0415 - as above

    record = _finished(store, config, run)
    result = _result_of(record)
    gate, winner = result.gate, result.winner
    if gate is None or winner is None:
        console.say(
            f"The gate judged nothing in {result.label}: there must be a candidate, held-out cases, "
            "and a champion or defaults to compare it with."
        )
        raise typer.Exit(EXIT_GATE)
    if gate.decision != "promote":
        _answer(
            {"promoted": False, "run": result.label, "decision": gate.decision}, as_json=as_json
        )
        console.say(
            f"The gate says {gate.decision}: difference {gate.mean:+.3f} [{gate.low:+.3f}, "
            f"{gate.high:+.3f}] on {counted(gate, 'held-out case')}, evidence {gate.log_e:.2f} of "
            f"{gate.log_threshold:.2f} nats. {CASES}"
        )
        raise typer.Exit(EXIT_GATE)
    with open_runtime(store, config) as state:
        why = obstacle(state, result)
        if why == "reigns":
            _answer(
                {"promoted": False, "run": result.label, "decision": "promote"}, as_json=as_json
            )
        if why is not None:
            console.say(told(why, result))
            if why == "changed":
                raise typer.Exit(EXIT_GATE)
            _release(record.tags.get(FLOW_RUN_TAG))
            return
        _confirm(f"Make {winner.label} the champion of {result.system}?", yes=yes)
        arms = adopt(
            state,
            result,
            reason=f"promoted from {result.label}",
            serve=serve,
            agent_type=agent_type,
            holdback=holdback,
            tolerance=tolerance,
        )
    _answer(
        {
            "promoted": True,
            "run": result.label,
            "decision": "promote",
            "candidate_id": winner.candidate_id,
            "params": dict(winner.params),
            "arm_id": arms[0],
            "watched_against": arms[1],
        },
        as_json=as_json,
    )
    console.say(f"{winner.label} is the champion of {result.system} now.")
    if arms[1] is not None:
        console.say(
            f"It serves as arm {arms[0]}; a guard compares it with {arms[1]}, which keeps "
            f"{holdback:.0%} of the requests. `convergence fold` looks."
        )
    _release(record.tags.get(FLOW_RUN_TAG))


def rollback(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="api.name of the system.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help=YES_HELP)] = False,
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Bring back the champion before the present one, on offer in its place."""
    console.settings.json = as_json
    from tasks.serving.promotion import offer_champion, take_off_offer  # noqa: PLC0415
    from tasks.store.runtime.promotions import champion_of, previous_champion, set_champion  # noqa: PLC0415
    from tasks.store.runtime.rows import Champion  # noqa: PLC0415

    with open_runtime(store, config) as state:
        reigning, former = champion_of(state, system), previous_champion(state, system)
        if reigning is None or former is None:
            raise ConfigurationError(
                [
                    Problem(
                        key="SYSTEM",
                        rule="must have had a champion before the present one",
                        value=system,
                        fix="`convergence gates` shows which systems had champions.",
                    )
                ]
            )
        _confirm(f"Bring {former.candidate_id} back as champion of {system}?", yes=yes)
        offer_champion(state, system, former)
        take_off_offer(state, system, reigning)
        set_champion(
            state,
            Champion(
                system=system,
                candidate_id=former.candidate_id,
                params=former.params,
                run_id=former.run_id,
                reason=f"rollback from {reigning.candidate_id}",
                created_us=_now_us(),
            ),
        )
    _answer(
        {"system": system, "candidate_id": former.candidate_id, "params": former.params},
        as_json=as_json,
    )
    console.say(f"{former.candidate_id} is the champion of {system} again.")


def gates(
    system: Annotated[
        str | None, typer.Argument(metavar="[SYSTEM]", help="Only of this api.name.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List every look of the gates, alarms of drift, and who is champion."""
    console.settings.json = as_json
    from tasks.store.runtime.promotions import champion_of, looks  # noqa: PLC0415 - SQLite
    from tasks.store.runtime.watches import alarms  # noqa: PLC0415 - as above

    with open_runtime(store, config) as state:
        found = looks(state, system)
        drifts = alarms(state, system)
        names = sorted({look.system for look in found} | ({system} if system else set()))
        champions = {name: champion_of(state, name) for name in names}
    if as_json:
        console.answer_json(
            {
                "looks": [
                    {name: getattr(look, name) for name in look.__slots__} for look in found
                ],
                "alarms": [{name: getattr(one, name) for name in one.__slots__} for one in drifts],
                "champions": {
                    name: None
                    if champion is None
                    else {key: getattr(champion, key) for key in champion.__slots__}
                    for name, champion in champions.items()
                },
            }
        )
        return
    for one in drifts:
        console.answer(
            f"Drift {datetime.fromtimestamp(one.created_us / 1e6, UTC):%Y-%m-%d %H:%M}: {one.what} "
            f"of {one.system}/{one.agent_type} went from {one.before:.3g} to "
            f"{one.after:.3g}"
        )
    if not found:
        console.say("No gate has looked at anything yet.")
        return
    columns = ("when", "system", "kind", "candidate", "against", "verdict", "n", "evidence")
    rows = [
        (
            f"{datetime.fromtimestamp(look.created_us / 1e6, UTC):%Y-%m-%d %H:%M}",
            look.system,
            look.kind,
            look.candidate_id or "",
            look.champion_id or "",
            look.decision,
            f"{look.n:,}",
            f"{look.log_e:.2f} of {look.log_threshold:.2f}",
        )
        for look in found
    ]
    console.show(console.simple_table(columns, rows, right=("n", "evidence")))
    if any(look.kind != "holdout" for look in found):
        console.answer(f"Verdicts on traffic: {TRAFFIC}")
    if any(look.kind == "holdout" for look in found):
        console.answer(f"Verdicts on held-out cases: {CASES}")
    for name, champion in champions.items():
        told = "none yet" if champion is None else f"{champion.candidate_id} ({champion.reason})"
        console.answer(f"Champion of {name}: {told}")


def _finished(store: Path | None, config: Path | None, name: str | None) -> "RunRecord":
    """Return the record of a finished run.

    Raises:
        RunNotFoundError: there is none.
    """
    opened = locations.open_store(store, config)
    records = [opened.run(name)] if name is not None else opened.runs()
    record = next((one for one in records if one.summary_json is not None), None)
    if record is None:
        raise RunNotFoundError(
            f"a finished run must exist to be promoted, but got {name or 'none in this store'}. "
            "`convergence resume` ends one that was stopped."
        )
    return record


def _result_of(record: "RunRecord") -> "RunResult":
    from convergence_core.result import RunResult  # noqa: PLC0415 - brings pydantic

    return RunResult.from_json(record.summary_json or "")


def _release(flow_run_id: str | None) -> None:
    """Let the flow run go on that waits for this adoption, where Prefect's server is known."""
    from deployments.nightly.approval import release  # noqa: PLC0415 - only where one may wait

    if flow_run_id is None:
        return
    found = release(flow_run_id)
    if found == "released":
        console.say("The flow run that waited for it goes on.")
    elif found == "unreachable":
        console.say("Prefect's server does not answer: a flow run that waits for it still waits.")


def open_runtime(store: Path | None, config: Path | None) -> "RuntimeStore":
    """Open the runtime state of a store that exists."""
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - brings SQLite

    path = locations.store_path(store, config)
    if not (path / "store.json").is_file():
        locations.open_store(store, config)  # says what is missing
    return RuntimeStore(path)


def _confirm(question: str, *, yes: bool) -> None:
    """Ask a person; refuse where nobody can answer.

    Raises:
        ConfigurationError: standard input is no terminal, and ``--yes`` was not given.
        typer.Exit: the person says no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(
            [
                Problem(
                    key="--yes",
                    rule="must be given where nobody can be asked",
                    value="",
                    fix="Add --yes to adopt it without a question.",
                )
            ]
        )
    if not typer.confirm(question):
        raise typer.Exit(1)


def _answer(value: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        console.answer_json(value)


def _now_us() -> int:
    return int(datetime.now(UTC).timestamp() * 1e6)
