"""``estimate``, and ``optimize --dry-run``: cost estimates without a call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from convergence import console
from convergence.cli import options
from convergence.cli.locations import load_with
from convergence_core.records import fields_of

if TYPE_CHECKING:
    from convergence.cost_estimate import RoleEstimate, RunEstimate
    from tasks.inputs.loader import Loaded


def estimate(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    generations: options.Generations = None,
    max_usd: options.MaxUsd = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    assignments: options.Assignments = None,
    _json: options.AsJson = False,
) -> None:
    """Estimate calls, tokens and dollars of a run, by role.

    Makes no call. Earlier runs of the same system in its store sharpen the numbers.
    """
    budget = {"max_calls": max_calls, "max_usd": max_usd, "max_tokens": max_tokens}
    emit_estimate(load_with(config, assignments), generations=generations, budget=budget)


def emit_estimate(
    loaded: "Loaded",
    *,
    generations: int | None = None,
    budget: Mapping[str, float | None] | None = None,
) -> None:
    """Print the cost estimate of a run with these overrides.

    Args:
        loaded: the configuration and its files.
        generations: overrides ``optimization.evolution.generations``.
        budget: limits by their key under ``budget``.

    Raises:
        ConfigurationError: an override is wrong.
    """
    from convergence.cost_estimate import estimate as estimate_run  # noqa: PLC0415 - brings NumPy
    from tasks.run.opener import with_overrides  # noqa: PLC0415 - brings DuckDB

    configuration = with_overrides(loaded.configuration, generations=generations, budget=budget)
    run = estimate_run(replace(loaded, configuration=configuration))
    names = ("config", "system", "notes", "price_version", "calls_with_retries", "unaffordable")
    console.emit(fields_of(run, *names, "roles", "total"), lambda: _show(run))


def _show(run: "RunEstimate") -> None:
    console.answer(f"\n{run.system}: nothing was called.", style="bold")
    from convergence_core.budget.limits import dollars  # noqa: PLC0415 - with the answer only

    columns: dict[str, Callable[[RoleEstimate], str]] = {
        "role": lambda role: role.role,
        "": lambda role: role.name,
        "calls": lambda role: _shown(role.calls.expected, _whole),
        "tokens": lambda role: _shown(role.tokens.expected, _whole),
        "USD": lambda role: _shown(role.usd.expected, dollars),
        "calls at most": lambda role: _shown(role.calls.high, _whole),
        "USD at most": lambda role: _shown(role.usd.high, dollars),
        "expected from": lambda role: role.basis,
    }
    numeric = ("calls", "tokens", "USD", "calls at most", "USD at most")
    rows, total = [*run.roles], run.total
    if len(rows) > 1 or any(columns[name](rows[0]) != columns[name](total) for name in numeric):
        rows.append(total)  # several roles, or a limit of the budget
    console.show(console.table_of(rows, columns, right=numeric))
    for role in run.roles:
        if role.unknown is not None:
            console.answer(f"{role.role.capitalize()}: {role.unknown}", style="yellow")
    for note in run.notes:
        console.answer(note)
    console.answer(
        f"List prices of {run.price_version}, and those of the configuration; your bill may "
        "differ."
    )


def _shown(number: float | None, show: Callable[[float], str]) -> str:
    return "unknown" if number is None else show(number)


def _whole(number: float) -> str:
    """Return a count of calls or tokens; from 10,000, rounded to three digits."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{float(f'{number:.3g}'):,.0f}"
