"""``arms`` and ``fold``: what is on offer to requests, live, and production brought home."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence.cli import console, locations
from convergence.cli.decide import JSON_HELP, open_runtime
from convergence_core.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from convergence.runtime.systems import Systems

app = typer.Typer(
    name="arms",
    no_args_is_help=True,
    help="What is on offer to requests: add and retire, live.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
System = Annotated[str, typer.Argument(metavar="SYSTEM", help="Name of the system.")]
ArmId = Annotated[str, typer.Argument(metavar="ARM", help="Name of the arm.")]
AgentType = Annotated[str | None, typer.Option(help="Kind of agent. Default: that of the system.")]
Store = Annotated[Path | None, typer.Option(help=locations.STORE_HELP)]
Config = Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)]
AsJson = Annotated[bool, typer.Option("--json", help=JSON_HELP)]


@app.command("list")
def list_arms(
    system: System,
    agent_type: AgentType = None,
    store: Store = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List arms with what is believed of them, those retired included."""
    console.settings.json = as_json
    with open_runtime(store, config) as state:
        found = _systems(state).arms(system, agent_type)
    if as_json:
        console.answer_json({"arms": found})
        return
    columns = ("arm", "agent", "mean", "rewards", "cost", "prior", "on offer", "parameters")
    rows = [
        (
            one["arm_id"],
            one["agent_type"],
            f"{one['mean']:.3f}",
            f"{one['n']:,}",
            "" if one["cost"] is None else f"{one['cost']:.4g}",
            ""
            if one["prior"] is None
            else f"{one['prior']['mean']:.3f} as {one['prior']['weight']:.0f} rewards",
            "no" if one["retired"] else "yes",
            json.dumps(one["params"])[:60],
        )
        for one in found
    ]
    console.show(console.simple_table(columns, rows, right=("mean", "rewards", "cost")))


@app.command()
def add(  # noqa: PLR0917 - Typer's options
    system: System,
    arm_id: ArmId,
    params: Annotated[
        str, typer.Option(metavar="JSON", help="Its parameters, as a JSON object.")
    ] = "{}",
    prior: Annotated[
        str | None,
        typer.Option(metavar="MEAN,SD", help="Mean reward that a night measured, and its error."),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(min=0.0, help="What a request costs, until updates tell it.")
    ] = None,
    agent_type: AgentType = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Put an arm on offer, or back on offer; running services take it up at once."""
    from convergence.runtime.settings import RuntimeArm  # noqa: PLC0415 - brings pydantic

    values: dict[str, Any] = {"arm_id": arm_id, "params": _object(params), "cost": cost}
    if prior is not None:
        values |= dict(zip(("prior_mean", "prior_sd"), _numbers(prior), strict=True))
    with open_runtime(store, config) as state:
        systems = _systems(state)
        settings = systems.config(system)
        systems.offer(
            settings, agent_type or settings.agent_type, (RuntimeArm.model_validate(values),)
        )
    console.say(f"{arm_id} is on offer.")


@app.command()
def retire(
    system: System,
    arm_id: ArmId,
    agent_type: AgentType = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Take an arm off offer; its decisions and rewards are kept."""
    with open_runtime(store, config) as state:
        was_on = _systems(state).retire(system, arm_id, agent_type)
    console.say(f"{arm_id} is off offer." if was_on else f"{arm_id} was off offer already.")


@app.command()
def reset(
    system: System,
    agent_type: AgentType = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Take the nightly priors out of all arms; what rewards taught stays."""
    with open_runtime(store, config) as state:
        systems = _systems(state)
        systems.known_group(system, agent_type)
        state.drop_priors(system, agent_type or systems.config(system).agent_type)
    console.say(f"{system} goes on without nightly priors.")


def fold(store: Store = None, config: Config = None, as_json: AsJson = False) -> None:
    """Bring production home once: decisions and rewards to the tables, a look at gates and guards.

    The deployment fold/hourly does the same.
    """
    console.settings.json = as_json
    from tasks.serving.fold import fold_store  # noqa: PLC0415 - brings NumPy

    with open_runtime(store, config) as state:
        root = state.root
    report = fold_store(root)
    if as_json:
        console.answer_json(
            {
                "decisions": report.n_decisions,
                "rewards": report.n_rewards,
                "evidence": {name: _plain(one) for name, one in report.evidence.items()},
                "guards": {name: _plain(one) for name, one in report.guards.items()},
                "alarms": [_plain(one) for one in report.alarms],
            }
        )
        return
    console.answer(f"{report.n_decisions:,} decisions and {report.n_rewards:,} rewards exported.")
    for name, found in report.evidence.items():
        console.answer(f"{name}: regret so far {found.regret:.1f}; {found.sentence}")
    for name, watched in report.guards.items():
        console.answer(
            f"{name}: promoted {watched.promoted} against {watched.champion}: {watched.decision} "
            f"after {watched.n:,} rewards, evidence {watched.log_e_worse:.2f} that it is worse and "
            f"{watched.log_e_better:.2f} that it is not, of {watched.log_threshold:.2f}"
        )
    for alarm in report.alarms:
        console.answer(
            f"Drift: {alarm.what} of {alarm.system} went from {alarm.before:.3g} to "
            f"{alarm.after:.3g}"
        )


def _plain(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _systems(state: Any) -> "Systems":
    from convergence.runtime.systems import Systems  # noqa: PLC0415 - brings NumPy

    return Systems(state)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise _refused("--params", "must be a JSON object", text, 'Write e.g. {"model": "small"}.')
    return found


def _numbers(text: str) -> tuple[float, float]:
    try:
        mean, sd = (float(part) for part in text.split(","))
    except ValueError:
        mean, sd = -1.0, 0.0
    if not (0.0 <= mean <= 1.0 and sd > 0.0):
        raise _refused(
            "--prior",
            "must be a mean in [0, 1] and an error above 0",
            text,
            "Write e.g. 0.8,0.05.",
        )
    return mean, sd


def _refused(key: str, rule: str, value: str, fix: str) -> ConfigurationError:
    return ConfigurationError([Problem(key=key, rule=rule, value=value[:80], fix=fix)])
