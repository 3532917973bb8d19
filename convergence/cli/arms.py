"""``arms`` and ``fold``: arms, and the export of runtime decisions."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import options
from convergence.cli.locations import open_runtime, open_store
from convergence.finished_runs import CandidateNames, finished_run
from convergence_core.errors import ConfigurationError
from convergence_core.records import fields_of

if TYPE_CHECKING:
    from tasks.serving.answers import Arm
    from tasks.serving.fold import FoldReport
    from tasks.serving.systems import Systems

app = options.command_group("arms", "List, add, route and retire the arms that answer requests.")
System = Annotated[str, typer.Argument(metavar="SYSTEM", help="Name of the system.")]
ArmId = Annotated[str, typer.Argument(metavar="ARM", help="Name of the arm.")]
AgentType = Annotated[str | None, typer.Option(help="Kind of agent. Default: the system's.")]


def _prior(arm: "Arm") -> str:
    prior = arm.prior
    return "" if prior is None else f"{prior['mean']:.3f} as {prior['weight']:.0f} rewards"


def _columns(names: CandidateNames) -> "dict[str, Callable[[Arm], str]]":
    return {
        "configuration": lambda arm: names.of(arm.arm_id, arm.params),
        "agent": lambda arm: arm.agent_type,
        "mean": lambda arm: f"{arm.mean:.3f}",
        "rewards": lambda arm: f"{arm.n:,}",
        "cost": lambda arm: "" if arm.cost is None else f"{arm.cost:.4g}",
        "prior": _prior,
        "active": lambda arm: "no" if arm.retired else "yes",
        "arm": lambda arm: arm.arm_id,
    }


@app.command("list")
def list_arms(
    system: System,
    agent_type: AgentType = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """List arms with their posterior means, retired ones included, and the ramp."""
    from tasks.store.runtime.watches import guards_of  # noqa: PLC0415 - SQLite

    with open_runtime(store, config) as state:
        arms, root = _systems(state).arms(system, agent_type), state.root
        watched = [guard for guard in guards_of(state, system) if guard.decision == "watching"]

    def show() -> None:
        names = CandidateNames(root)
        console.show(console.table_of(arms, _columns(names), right=("mean", "rewards", "cost")))
        for guard in watched:
            console.answer(names(guard.sentence({})))

    console.emit({"arms": arms, "guards": watched}, show)


@app.command()
def add(  # noqa: PLR0917 - Typer's options
    system: System,
    arm_id: ArmId,
    params: Annotated[
        str, typer.Option(metavar="JSON", help="Parameters of the arm, as a JSON object.")
    ] = "{}",
    prior: Annotated[
        str | None,
        typer.Option(
            metavar="MEAN,SD", help="Mean reward measured by a run, and its standard error."
        ),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=0.0, help="Cost of a request, until rewards report it.")
    ] = None,
    agent_type: AgentType = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Activate an arm; running services use it immediately."""
    from tasks.serving.settings import RuntimeArm  # noqa: PLC0415 - brings pydantic

    values: dict[str, Any] = {"arm_id": arm_id, "params": _object(params), "cost": cost}
    if prior is not None:
        values |= dict(zip(("prior_mean", "prior_sd"), _numbers(prior), strict=True))
    with open_runtime(store, config) as state:
        _systems(state).offer(system, [RuntimeArm.model_validate(values)], agent_type)
    console.say(f"{arm_id} is active.")


@app.command()
def retire(
    system: System,
    arm_id: ArmId,
    agent_type: AgentType = None,
    store: options.Store = None,
    config: options.Config = None,
) -> None:
    """Retire an arm, and keep its decisions and rewards."""
    with open_runtime(store, config) as state:
        was_on = _systems(state).retire(system, arm_id, agent_type)
    console.say(f"{arm_id} is retired." if was_on else f"{arm_id} is retired already.")


@app.command()
def route(
    run: options.FinishedRun = None,
    agent_type: AgentType = None,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Activate the settings whose routing by case raises the reward, with the run's evidence.

    A request's text and context choose the arm; its rewards confirm or replace that evidence.

    Exit code 100: the run does not show that routing raises the reward.
    """
    from convergence_core.result import RunResult  # noqa: PLC0415 - brings pydantic
    from tasks.report.phrases import routing_sentence  # noqa: PLC0415 - brings NumPy
    from tasks.serving.promotion import offer_routed  # noqa: PLC0415 - as above

    record = finished_run(open_store(store, config), run)
    result = RunResult.from_json(record.summary_json or "")
    routing = result.routing
    if routing is None or routing.night is None:
        sentence = routing_sentence(result) or f"{result.label} compared no settings by case."
        console.emit({"run": result.label, "routed": False, "arms": []}, sentence)
        raise typer.Exit(options.EXIT_NO)
    with open_runtime(store, config) as state:
        kind = agent_type or _systems(state).config(result.system).agent_type
        names = offer_routed(state, result, routing, agent_type=kind)
    console.emit(
        {"run": result.label, "routed": True, "arms": names},
        f"{len(names)} arms of {result.system} are active; each request's text and context choose one.",
    )


def fold(
    store: options.Store = None, config: options.Config = None, _json: options.AsJson = False
) -> None:
    """Export decisions, rewards and feedback to the tables; update gates, ramps and alarms.

    The deployment fold/hourly runs this every hour.
    """
    from tasks.serving.fold import fold_store  # noqa: PLC0415 - brings NumPy

    with open_runtime(store, config) as state:
        root = state.root
    report = fold_store(root)
    console.emit(
        {
            "decisions": report.n_decisions,
            "rewards": report.n_rewards,
            "rating_rewards": report.n_rating_rewards,
            **fields_of(report, "feedback", "policy", "evidence", "guards", "alarms"),
        },
        lambda: _show_fold(report, CandidateNames(root)),
    )


def _show_fold(report: "FoldReport", names: CandidateNames) -> None:
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user

    console.answer(
        f"{plural(report.n_decisions, 'decision')} and {plural(report.n_rewards, 'reward')} exported."
    )
    for origin, exported in (("feedback", report.feedback), ("policy", report.policy)):
        listed = ", ".join(f"{n:,} {table}" for table, n in exported.items() if n)
        if listed:
            console.answer(f"Of the {origin}: {listed} exported.")
    for name, evidence in report.evidence.items():
        console.answer(f"{name}: regret so far {evidence.regret:.1f}; {names(evidence.sentence)}")
    for name, watched in report.guards.items():
        console.answer(f"{name}: {names(watched.sentence)}")
    for alarm in report.alarms:
        console.answer(names(alarm.sentence))


def _systems(state: Any) -> "Systems":
    from tasks.serving.systems import Systems  # noqa: PLC0415 - brings NumPy

    return Systems(state)


def _object(text: str) -> dict[str, Any]:
    try:
        params = json.loads(text)
    except ValueError:
        params = None
    if not isinstance(params, dict):
        fix = 'Write e.g. {"model": "small"}.'
        raise ConfigurationError.of("--params", "must be a JSON object", fix, value=text[:80])
    return params


def _numbers(text: str) -> tuple[float, float]:
    try:
        mean, sd = (float(part) for part in text.split(","))
    except ValueError:
        mean, sd = -1.0, 0.0
    if not (0.0 <= mean <= 1.0 and sd > 0.0):
        rule = "must be a mean in [0, 1] and an error above 0"
        raise ConfigurationError.of("--prior", rule, "Write e.g. 0.8,0.05.", value=text[:80])
    return mean, sd
