"""``test``: evaluation of the current settings, for continuous integration."""

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

    from convergence.optimize.progress import ProgressDisplay
    from convergence_core.events import Event
    from convergence_core.result import CaseAnswer, CaseAnswers
    from tasks.inputs.loader import Loaded
    from tasks.run.assessment import Assessment, Check
    from tasks.run.run import Run

MOST_CASES = 10
"""Rows of the table of the lowest test cases."""


class Against(StrEnum):
    """Opponents of the current settings."""

    CHAMPION = "champion"


def check_settings(  # noqa: PLR0917 - Typer's options
    config: options.ConfigFile = options.CONFIG_FILE,
    fail_under: Annotated[
        float | None,
        typer.Option(
            "--fail-under",
            min=0,
            max=1,
            help="Fail if the mean reward is below this; from 0 to 1.",
        ),
    ] = None,
    against: Annotated[
        Against | None,
        typer.Option(
            help="champion: evaluate the stored champion on the same cases, and fail if the current "
            "settings are worse (the whole interval of the difference lies below 0)."
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML to this file.")
    ] = None,
    offline: options.Offline = False,
    max_usd: options.MaxUsd = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_minutes: options.MaxMinutes = None,
    assignments: options.Assignments = None,
    quiet: options.Quiet = False,
    _json: options.AsJson = False,
) -> None:
    """Evaluate the current settings (the defaults) on all test cases, without a search.

    Uses the same call log and budget as a run.

    Exit codes: 0 passed; 1 below --fail-under, worse than the champion,
    or cases without a reward; 2 bad input; 3 budget reached before all
    cases were evaluated.
    """
    from convergence.optimize.progress import ProgressDisplay, open_screen  # noqa: PLC0415 - brings Rich

    budget = limits_of(max_usd, max_calls, max_tokens, max_minutes)
    with (
        ProgressDisplay(open_screen(quiet=quiet or console.settings.json)) as progress,
        mock_server(wanted=offline) as mock_url,
    ):
        loaded = load_with(config, assignments)
        assessment = _assess(loaded, progress, against, budget, mock_url)
    checks = assessment.checks(fail_under)
    if junit is not None:
        from convergence.cli.junit import junit_xml  # noqa: PLC0415 - with its only user
        from tasks.store.layout import write_file  # noqa: PLC0415 - as above

        write_file(junit, junit_xml(assessment, checks))
    code = exit_code(assessment, checks)
    console.emit(_row(assessment, checks, code), lambda: _show(assessment, checks))
    if code:
        raise typer.Exit(code)


def exit_code(assessment: "Assessment", checks: "Sequence[Check]") -> int:
    """Return 3 if a limit of the budget was reached, 1 if a check fails."""
    if assessment.limit is not None:
        return EXIT_BUDGET
    return 0 if all(check.passed for check in checks) else EXIT_ERROR


def _assess(
    loaded: "Loaded",
    progress: "ProgressDisplay",
    against: Against | None,
    budget: dict[str, float | None],
    mock_url: str | None,
) -> "Assessment":
    from convergence.cli.interrupts import stops_cleanly  # noqa: PLC0415 - only for runs
    from convergence_core.events import BudgetWarned, CellEvaluated, TrafficChanged  # noqa: PLC0415
    from tasks.run.assessment import assess, open_assessment  # noqa: PLC0415 - brings clients

    def show(event: "Event") -> None:
        if isinstance(event, CellEvaluated | BudgetWarned | TrafficChanged):
            progress(event)

    against_champion = against is Against.CHAMPION
    run = open_assessment(
        loaded,
        against_champion=against_champion,
        budget=budget,
        mock_url=mock_url,
        on_event=show,
    )
    advice = "The same command continues; paid answers are kept."
    try:
        _announce(progress, run)
        with stops_cleanly(run, progress, advice):
            return assess(run, against_champion=against_champion)
    except KeyboardInterrupt:
        raise RunInterruptedError("interrupted before the first call.") from None
    finally:
        run.close()


def _announce(progress: "ProgressDisplay", run: "Run") -> None:
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - with its only user

    cases = plural(len(run.loaded.cases), "test case")
    progress.say(f"{run.label}: current settings on {cases}", "bold")
    if run.resumed_from or run.spent.calls:
        progress.say("continues an interrupted test; repeats no finished call")


# -- showing


def _show(assessment: "Assessment", checks: "Sequence[Check]") -> None:
    from convergence_core.result import number_text  # noqa: PLC0415 - with its only user
    from convergence_core.result.number_text import plural  # noqa: PLC0415 - as above
    from tasks.report import phrases  # noqa: PLC0415 - with its only user

    level = number_text.percent(assessment.level)
    console.answer(
        f"\n{assessment.system}: current settings on "
        f"{plural(len(assessment.cases) + len(assessment.unasked), 'test case')}",
        style="bold",
    )
    if assessment.is_offline:
        console.answer("Offline: a mock wrote these answers; they say nothing about real models.")
    if assessment.estimate is None:
        console.answer("Mean reward: none, no case has a reward.")
    else:
        console.answer(
            f"Mean reward {phrases.estimate(assessment.estimate)}; the interval holds the mean of such cases "
            f"with {level} confidence."
        )
    if assessment.of_champion is not None and assessment.difference is not None:
        console.answer(
            f"The champion: {phrases.estimate(assessment.of_champion)}. Difference, paired by case: "
            f"{phrases.difference(assessment.difference)}."
        )
    console.answer(_means(assessment))
    known, n_unpriced = assessment.cost_usd, assessment.n_unpriced
    price = "no price known" if known is None else number_text.spent(known, n_unpriced)
    console.answer(f"This test: {plural(assessment.n_calls, 'call')}, {price}.")

    _show_low(assessment)
    for check in checks:
        style = "green" if check.passed else "bold red"
        console.answer(f"{'passed' if check.passed else 'FAILED'}: {check.sentence}", style=style)
    if assessment.limit is not None:
        console.answer(
            f"FAILED: budget reached: {assessment.limit} Raise the limit and repeat the command to continue.",
            style="bold red",
        )


def _show_low(assessment: "Assessment") -> None:
    """Print the test cases whose reward is below 1, the lowest first."""
    from convergence_core.result.number_text import UNKNOWN, reward  # noqa: PLC0415 - as above
    from tasks.report.blocks import Columns, table  # noqa: PLC0415 - as above
    from tasks.report.phrases import short  # noqa: PLC0415 - as above

    def text(answer: "CaseAnswer | None") -> str:
        shown = None if answer is None else answer.error or answer.text
        return UNKNOWN if shown is None else short(shown, 50)

    columns: Columns[CaseAnswers] = {
        "case": lambda case: short(case.case_id, 40),
        "reward": lambda case: reward(None if case.second is None else case.second.reward),
        "expected": lambda case: UNKNOWN if case.expected is None else short(case.expected, 40),
        "answer": lambda case: text(case.second),
    }
    low = [
        case
        for case in assessment.cases
        if case.second is None or (case.second.reward or 0.0) < 1.0
    ]
    if low:
        shown = low[:MOST_CASES]
        more = "" if len(shown) == len(low) else f", {len(shown)} of {len(low)}"
        compared = assessment.difference is not None
        first = "largest loss against the champion" if compared else "lowest"
        console.answer(f"\nCases below 1, {first} first{more}")
        console.show_block(table(shown, columns, numeric=("reward",)))


def _means(assessment: "Assessment") -> str:
    """Return mean metrics, latency and price of an answer as a sentence."""
    from convergence_core.result.number_text import milliseconds, usd  # noqa: PLC0415 - as below
    from tasks.report import phrases  # noqa: PLC0415 - with its only user

    means = means_of(assessment)
    answers = [case.second for case in assessment.cases if case.second is not None]

    def coverage(name: str) -> str:
        n = sum(name in answer.metrics for answer in answers)
        return "" if n == len(answers) else f" (known of {n:,} of {len(answers):,} cases)"

    metrics = [
        f"{name} {phrases.number(value)}{coverage(name)}"
        for name, value in means["metrics"].items()
    ]
    price = means["cost_usd"]
    parts = [
        *metrics,
        *([] if "latency_ms" in means["metrics"] else [milliseconds(means["latency_ms"])]),
        "price not known" if price is None else f"price {usd(price)}",
    ]
    return f"One answer on average: {', '.join(parts)}."


def means_of(assessment: "Assessment") -> dict[str, Any]:
    """Return the current settings' mean metrics, latency (ms) and price (USD), by case weight."""
    from tasks.report.answers import per_answer  # noqa: PLC0415 - brings DuckDB
    from tasks.report.evidence import mean_of_known  # noqa: PLC0415 - as above

    known = [(case.second, case.weight) for case in assessment.cases if case.second is not None]
    weights = [weight for _, weight in known]
    metrics = {
        name: mean_of_known((answer.metrics.get(name) for answer, _ in known), weights)
        for name in sorted({name for answer, _ in known for name in answer.metrics})
    }
    return {"metrics": metrics, **per_answer(known)}


def _row(assessment: "Assessment", checks: "Sequence[Check]", code: int) -> dict[str, Any]:
    return {
        "run": assessment.label,
        "system": assessment.system,
        "offline": assessment.is_offline,
        "passed": code == 0,
        "exit_code": code,
        "checks": [asdict(check) for check in checks],
        "params": assessment.present.params,
        "reward": assessment.estimate,
        "champion": None
        if assessment.champion is None
        else {
            "candidate_id": assessment.champion.candidate_id,
            "params": assessment.champion.params,
            "reward": assessment.of_champion,
            "difference": assessment.difference,
        },
        "per_answer": means_of(assessment),
        "calls": assessment.n_calls,
        "cost_usd": assessment.cost_usd,
        "n_unpriced": assessment.n_unpriced,
        "budget_reached": assessment.limit,
        "unasked": assessment.unasked,
        "cases": [
            {
                "case_id": case.case_id,
                "held_out": case.role == "holdout",
                "input": case.input,
                "expected": case.expected,
                "answer": case.second,
                "champion": case.first,
            }
            for case in assessment.cases
        ],
    }
