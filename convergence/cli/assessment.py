"""``test``: the present settings on the test cases, for continuous integration."""

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convergence import console
from convergence.cli import options
from convergence.cli.locations import load_with
from convergence.cli.optimize import EXIT_BUDGET, EXIT_ERROR, limits_of, mock_server
from convergence_core.errors import RunInterruptedError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from convergence.optimize.progress import Screen
    from convergence_core.events import Event
    from convergence_core.result import CaseAnswer, CaseAnswers
    from tasks.inputs.loader import Loaded
    from tasks.run.assessment import Assessment, Check
    from tasks.run.run import Run

MOST_CASES = 10
"""Rows of the table of the lowest cases."""


class Against(StrEnum):
    """Whom the present settings are compared with."""

    CHAMPION = "champion"


def check_settings(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    fail_under: Annotated[
        float | None,
        typer.Option(
            "--fail-under",
            min=0,
            max=1,
            help="Fail if the mean reward is below this, from 0 to 1.",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            help="champion: evaluate the stored champion on the same cases, and fail if the present "
            "settings are shown to be worse (the whole interval of the difference lies below 0)."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML here.")
    ] = None,
    assignments: options.Assignments = None,
    max_calls: options.MaxCalls = None,
    max_usd: options.MaxUsd = None,
    max_tokens: options.MaxTokens = None,
    max_minutes: options.MaxMinutes = None,
    offline: options.Offline = False,
    quiet: options.Quiet = False,
    as_json: options.ResultAsJson = False,
) -> None:
    """Evaluate the present settings (the defaults) on all test cases; no search.

    Calls go through the same journal and budget as those of a run.

    Exit codes: 0 passed; 1 below --fail-under, worse than the champion,
    or cases without a reward; 2 bad input; 3 the budget was reached
    before all cases were asked.
    """
    from convergence.optimize.progress import open_screen  # noqa: PLC0415 - brings Rich

    budget = limits_of(max_usd, max_calls, max_tokens, max_minutes)
    screen = open_screen(quiet=quiet or as_json)
    with mock_server(wanted=offline) as mock_url:
        try:
            found = _assess(load_with(config, assignments), screen, against, budget, mock_url)
        finally:
            screen.close()
    checks = found.checks(fail_under)
    if junit is not None:
        from convergence.cli.junit import junit_xml  # noqa: PLC0415 - with its only user
        from tasks.store.layout import write_file  # noqa: PLC0415 - as above

        write_file(junit, junit_xml(found, checks))
    code = exit_code(found, checks)
    if as_json:
        console.answer_json(_row(found, checks, code))
    else:
        _show(found, checks)
    if code:
        raise typer.Exit(code)


def exit_code(found: "Assessment", checks: "Sequence[Check]") -> int:
    """Return 3 where a limit of the budget was reached, 1 where a check fails."""
    if found.limit is not None:
        return EXIT_BUDGET
    return 0 if all(check.passed for check in checks) else EXIT_ERROR


def _assess(
    loaded: "Loaded",
    screen: "Screen",
    against: Against | None,
    budget: dict[str, float | None],
    mock_url: str | None,
) -> "Assessment":
    from convergence.cli.interrupts import stops_cleanly  # noqa: PLC0415 - only for runs
    from tasks.run.assessment import assess, open_assessment  # noqa: PLC0415 - brings clients

    whom = against is Against.CHAMPION
    run = open_assessment(
        loaded,
        against_champion=whom,
        budget=budget,
        mock_url=mock_url,
        on_event=_listener(screen),
    )
    go_on = "The same command goes on; what was answered is not paid again."
    try:
        _tell(screen, run)
        with stops_cleanly(
            run.stop,
            lambda text: screen.line(text, "yellow"),
            go_on,
            has_begun=lambda: run.has_begun,
        ):
            return assess(run, against_champion=whom)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted before anything was asked.") from None
    finally:
        run.close()


def _tell(screen: "Screen", run: "Run") -> None:
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user

    cases = plural(len(run.loaded.cases), "test case")
    screen.line(f"{run.label}: the present settings on {cases}", "bold")
    if run.resumed_from or run.spent.calls:
        screen.line("goes on with a test that was interrupted; finished calls are not made again")


def _listener(screen: "Screen") -> "Callable[[Event], None]":
    """Return what shows the cells that are done, and what has to be said of budget and providers."""
    from convergence.optimize.progress import NewTexts  # noqa: PLC0415 - with its only user
    from convergence_core.events import BudgetWarned, CellEvaluated, TrafficChanged  # noqa: PLC0415

    done, is_new = 0, NewTexts()

    def show(event: "Event") -> None:
        nonlocal done
        match event:
            case CellEvaluated():
                done += 1
                screen.status(f"{done} answers", done, 0)
            case TrafficChanged() if not is_new(event.text):
                screen.status(f"{done} answers · {event.text}", done, 0)
            case BudgetWarned() | TrafficChanged():
                screen.line(event.text, "yellow")
            case _:
                pass

    return show


# -- showing


def _show(found: "Assessment", checks: "Sequence[Check]") -> None:
    from convergence_core.result import number_text  # noqa: PLC0415 - with its only user
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - as above
    from tasks.report import phrases  # noqa: PLC0415 - with its only user

    level = number_text.percent(found.level)
    console.answer(
        f"\n{found.system}: present settings on "
        f"{plural(len(found.cases) + len(found.unasked), 'test case')}",
        style="bold",
    )
    if found.is_offline:
        console.answer("Offline: these answers are a stand-in's, and say nothing of real models.")
    if found.estimate is None:
        console.answer("Mean reward: none, no case has a reward.")
    else:
        console.answer(
            f"Mean reward {phrases.estimate(found.estimate)}; the interval holds the mean of cases "
            f"like these with {level} confidence."
        )
    if found.of_champion is not None and found.difference is not None:
        console.answer(
            f"The champion: {phrases.estimate(found.of_champion)}. Difference, paired by case: "
            f"{phrases.difference(found.difference)}."
        )
    console.answer(_means(found))
    price = "no price known" if found.cost_usd is None else number_text.usd(found.cost_usd)
    console.answer(f"This test: {plural(found.n_calls, 'call')}, {price}.")

    _show_low(found)
    for check in checks:
        style = "green" if check.passed else "bold red"
        console.answer(f"{'passed' if check.passed else 'FAILED'}: {check.sentence}", style=style)
    if found.limit is not None:
        console.answer(
            f"FAILED: the budget was reached: {found.limit} With a higher limit the same command "
            "goes on where this one ended.",
            style="bold red",
        )


def _show_low(found: "Assessment") -> None:
    """Print the cases that the present settings do not answer perfectly, the first of many."""
    from convergence_core.result.number_text import UNKNOWN, reward  # noqa: PLC0415 - as above
    from tasks.report.blocks import Columns, table  # noqa: PLC0415 - as above
    from tasks.report.phrases import short  # noqa: PLC0415 - as above

    def text(answer: "CaseAnswer | None") -> str:
        shown = None if answer is None else answer.error or answer.text
        return UNKNOWN if shown is None else short(shown, 50)

    columns: Columns[CaseAnswers] = {
        "case": lambda one: short(one.case_id, 40),
        "reward": lambda one: reward(None if one.second is None else one.second.reward),
        "expected": lambda one: UNKNOWN if one.expected is None else short(one.expected, 40),
        "answer": lambda one: text(one.second),
    }
    low = [one for one in found.cases if one.second is None or (one.second.reward or 0.0) < 1.0]
    if low:
        shown = low[:MOST_CASES]
        more = "" if len(shown) == len(low) else f", {len(shown)} of {len(low)}"
        if found.difference is None:
            console.answer(f"\nCases below 1, lowest first{more}")
        else:
            console.answer(f"\nCases below 1, largest loss against the champion first{more}")
        console.show_block(table(shown, columns, numeric=("reward",)))


def _means(found: "Assessment") -> str:
    """Return the means over cases of metrics, latency and price of the present settings."""
    from convergence_core.result.number_text import milliseconds, usd  # noqa: PLC0415 - as below
    from tasks.report import phrases  # noqa: PLC0415 - with its only user

    means = means_of(found)
    metrics = [f"{name} {phrases.number(value)}" for name, value in means["metrics"].items()]
    price = means["cost_usd"]
    one = [
        *metrics,
        *([] if "latency_ms" in means["metrics"] else [milliseconds(means["latency_ms"])]),
        "price not known" if price is None else f"price {usd(price)}",
    ]
    return f"One answer on average: {', '.join(one)}."


def means_of(found: "Assessment") -> dict[str, Any]:
    """Return the plain means over cases of what the present settings' answers measure."""
    answers = [case.second for case in found.cases if case.second is not None]

    def mean(values: "list[float | None]") -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    names = sorted({name for answer in answers for name in answer.metrics})
    return {
        "metrics": {name: mean([one.metrics.get(name) for one in answers]) for name in names},
        "latency_ms": mean([one.latency_ms for one in answers]),
        "cost_usd": mean([one.cost_usd for one in answers]),
    }


def _row(found: "Assessment", checks: "Sequence[Check]", code: int) -> dict[str, Any]:
    return {
        "run": found.label,
        "system": found.system,
        "offline": found.is_offline,
        "passed": code == 0,
        "exit_code": code,
        "checks": [asdict(check) for check in checks],
        "params": found.present.params,
        "reward": found.estimate,
        "champion": None
        if found.champion is None
        else {
            "candidate_id": found.champion.candidate_id,
            "params": found.champion.params,
            "reward": found.of_champion,
            "difference": found.difference,
        },
        "per_answer": means_of(found),
        "calls": found.n_calls,
        "cost_usd": found.cost_usd,
        "budget_reached": found.limit,
        "unasked": found.unasked,
        "cases": [
            {
                "case_id": case.case_id,
                "held_out": case.role == "holdout",
                "input": case.input,
                "expected": case.expected,
                "answer": case.second,
                "champion": case.first,
            }
            for case in found.cases
        ],
    }
