"""``estimate``, and ``optimize --dry-run``: cost estimates without a call."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from convergence import console
from convergence.cli import options
from convergence.cli.locations import load_with

if TYPE_CHECKING:
    from convergence.cost_estimate.call_quotes import RoleEstimate
    from convergence.cost_estimate.estimate import RunEstimate
    from tasks.inputs.loader import Loaded


def estimate(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    generations: options.Generations = None,
    assignments: options.Assignments = None,
    max_calls: options.MaxCalls = None,
    max_usd: options.MaxUsd = None,
    max_tokens: options.MaxTokens = None,
    as_json: options.AsJson = False,
) -> None:
    """Estimate what a run would cost: calls, tokens and dollars, by role.

    Calls nothing. Earlier runs of the same system in its store make the numbers sharper.
    """
    budget = {"max_calls": max_calls, "max_usd": max_usd, "max_tokens": max_tokens}
    show_estimate(
        load_with(config, assignments), generations=generations, budget=budget, as_json=as_json
    )


def show_estimate(
    loaded: "Loaded",
    *,
    generations: int | None = None,
    budget: Mapping[str, float | None] | None = None,
    as_json: bool = False,
) -> None:
    """Print what a run with these overrides would cost.

    Args:
        loaded: the configuration and its files.
        generations: in place of ``optimization.evolution.generations``.
        budget: limits by their key under ``budget``.
        as_json: whether the answer is one JSON object.

    Raises:
        ConfigurationError: an override is wrong.
    """
    from convergence.cost_estimate.estimate import estimate as estimate_run  # noqa: PLC0415 - brings NumPy
    from tasks.run.opener import with_overrides  # noqa: PLC0415 - brings DuckDB

    configuration = with_overrides(loaded.configuration, generations=generations, budget=budget)
    found = estimate_run(replace(loaded, configuration=configuration))
    if as_json:
        console.answer_json(found.to_json())
    else:
        _show(found)


def _show(found: "RunEstimate") -> None:
    console.answer(f"\n{found.system}: nothing was called.", style="bold")
    from convergence_core.budget.terms import dollars  # noqa: PLC0415 - with the answer only

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
    rows, total = [*found.roles], found.total
    if len(rows) > 1 or any(columns[name](rows[0]) != columns[name](total) for name in numeric):
        rows.append(total)  # several roles, or a limit of the budget
    console.show(console.table_of(rows, columns, right=numeric))
    for role in found.roles:
        if role.unknown is not None:
            console.answer(f"{role.role.capitalize()}: {role.unknown}", style="yellow")
    for note in found.notes:
        console.answer(note)
    console.answer(
        f"List prices of {found.price_version}, and those of the configuration; your bill may "
        "differ."
    )


def _shown(number: float | None, show: Callable[[float], str]) -> str:
    return "unknown" if number is None else show(number)


def _whole(number: float) -> str:
    """Return a count of calls or tokens; more digits than four mean nothing here."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{float(f'{number:.3g}'):,.0f}"
