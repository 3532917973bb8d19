"""``ope``: what another policy would have earned."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence.cli import console, locations
from convergence_core.errors import ConfigurationError, Problem

if TYPE_CHECKING:
    from convergence_core.bandit.off_policy import OffPolicyEstimate, PolicyValue
    from tasks.serving.off_policy_log import NamedLog

EXIT_ALARM = 100
"""The log says too little: a gate that says no."""


def ope(  # noqa: PLR0917 - Typer's options
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="Parquet or CSV file with action, reward and propensity, or a system.",
        ),
    ],
    policy: Annotated[
        str, typer.Option(help="uniform; an arm; or shares: small=0.2,large=0.8.")
    ] = "uniform",
    column: Annotated[
        list[str] | None,
        typer.Option(help="The file's own name of a column: reward=click. May be given again."),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Probability that an interval covers.")
    ] = 0.95,
    least_ess: Annotated[
        float, typer.Option(min=1, help="Effective sample size below which the alarm fires.")
    ] = 100.0,
    store: Annotated[Path | None, typer.Option(help=locations.STORE_HELP)] = None,
    config: Annotated[Path | None, typer.Option(help=locations.CONFIG_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Answer as JSON.")] = False,
) -> None:
    """Estimate from a log what another policy would have earned.

    Exit code 100: the log says too little about that policy.
    """
    console.settings.json = as_json
    from convergence_core.bandit.off_policy import estimate, fitted_model  # noqa: PLC0415 - brings NumPy
    from tasks.serving.off_policy_log import target_of  # noqa: PLC0415 - as above

    found = _log(log, column or [], store, config)
    target = target_of(policy, found.arms)
    result = estimate(
        found.log,
        target,
        model=fitted_model(found.log, len(found.arms)),
        level=level,
        least_ess=least_ess,
    )
    if as_json:
        console.answer_json(_plain(result, found))
    else:
        _show(result, found)
    for alarm in result.alarms:
        console.say(f"Alarm: {alarm}", "bold red")
    if result.alarms:
        raise typer.Exit(EXIT_ALARM)


def _log(name: str, columns: list[str], store: Path | None, config: Path | None) -> "NamedLog":
    from tasks.serving.off_policy_log import read_log, stored_log  # noqa: PLC0415 - brings NumPy

    if Path(name).is_file():
        pairs = [text.partition("=") for text in columns]
        wrong = [key for key, equals, value in pairs if not equals or not value]
        if wrong:
            raise ConfigurationError(
                [
                    Problem(
                        key="--column",
                        rule="must have the form name=column",
                        value=wrong[0],
                        fix="Write e.g. --column reward=click.",
                    )
                ]
            )
        return read_log(Path(name), {key: value for key, _, value in pairs})
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - brings SQLite

    path = locations.store_path(store, config)
    if not (path / "store.json").is_file():
        locations.open_store(store, config)  # says what is missing
    with RuntimeStore(path) as state:
        return stored_log(state, name)


def _values(result: "OffPolicyEstimate") -> "dict[str, PolicyValue | None]":
    return {"IPS": result.ips, "SNIPS": result.snips, "DR": result.dr}


def _plain(result: "OffPolicyEstimate", found: "NamedLog") -> dict[str, object]:
    return {
        "n": result.n,
        "n_left_out": found.n_left_out,
        "arms": found.arms,
        "ess": result.ess,
        "n_matching": result.n_matching,
        "mean_weight": result.mean_weight,
        "largest_weight": result.largest_weight,
        "logged": result.logged,
        "estimates": {
            name.lower(): None
            if v is None
            else {"mean": v.mean, "low": v.low, "high": v.high, "level": v.level}
            for name, v in _values(result).items()
        },
        "missing": result.missing,
        "alarms": result.alarms,
    }


def _show(result: "OffPolicyEstimate", found: "NamedLog") -> None:
    console.answer(
        f"{result.n:,} requests, {len(found.arms):,} arms, {found.n_left_out:,} rows left out; "
        f"the policy that ran earned {result.logged:.5g} on average."
    )
    told = [(name, v) for name, v in _values(result).items() if v is not None]
    if told:
        rows = [(name, f"{v.mean:.5g}", f"[{v.low:.5g}, {v.high:.5g}]") for name, v in told]
        level = f"{100 * told[0][1].level:g} % interval"
        console.show(
            console.simple_table(("estimate", "mean reward", level), rows, right=("mean reward",))
        )
    if result.missing is not None:
        console.answer(f"No estimate: {result.missing}.")
    console.answer(
        f"Effective sample size {result.ess:,.1f}; mean weight {result.mean_weight:.3g} (1 is "
        f"expected), largest {result.largest_weight:.3g}."
    )
