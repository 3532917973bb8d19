"""``ope``: off-policy estimates of a policy's mean reward."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convergence import console
from convergence.cli import locations, options
from convergence.cli.options import EXIT_NO
from convergence_core.errors import ConfigurationError
from convergence_core.records import fields_of

if TYPE_CHECKING:
    from convergence_core.bandit.off_policy import Log, OffPolicyEstimate


def ope(  # noqa: PLR0917 - Typer's options
    log: Annotated[
        str,
        typer.Argument(
            metavar="LOG",
            help="Parquet or CSV file with action, reward and propensity, or a system's name.",
        ),
    ],
    policy: Annotated[
        str, typer.Option(help="uniform; an arm; or shares: small=0.2,large=0.8.")
    ] = "uniform",
    column: Annotated[
        list[str] | None,
        typer.Option(help="Name of a column in the file, e.g. reward=click. Repeatable."),
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.9999, help="Coverage of the interval.")
    ] = 0.95,
    least_ess: Annotated[
        float,
        typer.Option(min=1, help="Effective sample size below which the command exits with 100."),
    ] = 100.0,
    store: options.Store = None,
    config: options.Config = None,
    _json: options.AsJson = False,
) -> None:
    """Estimate from a log the reward that another policy would have earned.

    Exit code 100: the log holds too little evidence about that policy.
    """
    from convergence_core.bandit.off_policy import estimate  # noqa: PLC0415 - brings NumPy
    from tasks.serving.off_policy_log import target_of  # noqa: PLC0415 - as above

    named = _log(log, column or [], store, config)
    target = target_of(policy, named.arms)
    result = estimate(named, target, level=level, least_ess=least_ess)
    console.emit(
        {**fields_of(named, "n_left_out", "arms"), **asdict(result)}, lambda: _show(result, named)
    )
    for alarm in result.alarms:
        console.say(f"Alarm: {alarm}", "bold red")
    if result.alarms:
        raise typer.Exit(EXIT_NO)


def _log(name: str, columns: list[str], store: Path | None, config: Path | None) -> "Log":
    from tasks.serving.off_policy_log import read_log, stored_log  # noqa: PLC0415 - brings NumPy

    if Path(name).is_file():
        pairs = [text.partition("=") for text in columns]
        wrong = [key for key, equals, value in pairs if not equals or not value]
        if wrong:
            rule, fix = "must have the form name=column", "Write e.g. --column reward=click."
            raise ConfigurationError.of("--column", rule, fix, value=wrong[0])
        return read_log(Path(name), {key: value for key, _, value in pairs})
    with locations.open_runtime(store, config) as state:
        return stored_log(state, name)


def _show(result: "OffPolicyEstimate", named: "Log") -> None:
    console.answer(
        f"{result.n:,} requests, {len(named.arms):,} arms, {named.n_left_out:,} rows left out; "
        f"the policy that ran earned {result.logged:.5g} on average."
    )
    if result.mean is not None:
        console.answer(
            f"This policy would have earned {result.mean:.5g} on average, {100 * result.level:g} % "
            f"interval [{result.low:.5g}, {result.high:.5g}]."
        )
    if result.missing is not None:
        console.answer(f"No estimate: {result.missing}.")
    console.answer(
        f"Effective sample size {result.ess:,.1f}; mean weight {result.mean_weight:.3g} (1 is "
        f"expected), largest {result.largest_weight:.3g}."
    )
