"""A finished run on one screen."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from convergence.cli import console
from convergence.optimize.progress import count, shown_value
from convergence_core.caveats import CASES
from tasks.report.phrases import counted, plural

if TYPE_CHECKING:
    from convergence_core.result import CandidateReport, Difference, Estimate, RunResult

LONGEST_VALUE = 60
"""Characters of a parameter's value that are shown."""
LONGEST_THOUGHT = 400
"""Characters of the best thought that are shown."""
MOST_FAILURES = 3
MANY_ROLES = 2
"""Roles or models from which on their costs are listed apart."""


def show(result: "RunResult") -> None:
    """Print what was found, what it rests on, and where to read more."""
    console.answer(f"\n{result.label}: {result.status}, {result.reason}", style="bold")
    console.answer(f"  {told_size(result)}")
    if result.winner is None:
        why = "Every evaluation failed" if result.all_failed else "No candidate got a reward"
        console.answer(f"\n{why}, so nothing is recommended.", style="bold red")
    else:
        _show_winner(result, result.winner)
    _show_thinking(result)
    _show_preferences(result)
    _show_failures(result)
    _show_costs(result)
    if result.files:
        console.answer("\nFiles:", style="bold")
        for path in dict.fromkeys(result.files.values()):
            console.answer(f"  {console.short_path(Path(path))}")
    console.answer(f"\nMore: convergence report {result.label}")


def told_size(result: "RunResult") -> str:
    """Return what was done, in one line."""
    parts = [
        count(result.generations_run, "generation"),
        count(result.n_candidates, "candidate"),
        count(result.n_evaluations, "evaluation"),
        count(result.n_calls, "call"),
    ]
    if result.n_cached:
        parts.append(f"{count(result.n_cached, 'answer')} from the journal")
    if result.n_failed:
        parts.append(f"{result.n_failed:,} failed")
    if result.n_missing:
        parts.append(f"{result.n_missing:,} without a reward")
    if result.n_maybe_paid:
        parts.append(f"{result.n_maybe_paid:,} maybe paid")
    if result.cost_usd is not None:
        parts.append(f"${result.cost_usd:.4f}{told_offline(result)}")
    return ", ".join(parts)


def told_offline(result: "RunResult") -> str:
    """Return a remark on money for runs in which nobody was paid."""
    return " at list prices, nothing paid" if result.facts.get("offline") else ""


def _show_winner(result: "RunResult", winner: "CandidateReport") -> None:
    rows = list(_estimates("winner", winner))
    if result.baseline is not None and not result.winner_is_baseline:
        rows += _estimates("defaults", result.baseline)
    columns = ("", "mean reward on", "mean", "interval", "cases")
    console.answer("")
    console.show(console.simple_table(columns, rows, right=("mean", "cases")))
    for line in _told_differences(result):
        console.answer(line)
    if result.final_look:
        console.answer(f"Final look: {result.final_look}.", style="yellow")
    console.answer("\nRecommended:", style="bold")
    width = max((len(name) for name in winner.params), default=0)
    for name, value in _short(winner.params).items():
        console.answer(f"  {name:<{width}}  {value}")
    if result.winner_reason:
        console.answer(f"  ({result.winner_reason})")


def _estimates(who: str, candidate: "CandidateReport") -> Iterator[tuple[str, ...]]:
    measured: tuple[tuple[str, Estimate | None], ...] = (
        ("held-out cases", candidate.holdout),
        ("search cases, asked again", candidate.fresh),
        ("search, chosen by these (posterior)", candidate.search),
    )
    for where, estimate in measured:
        if estimate is not None:
            interval = f"[{estimate.low:.3f}, {estimate.high:.3f}]"
            n = f"{estimate.n_cases:,}"
            if estimate.n_groups is not None:
                n += f" in {plural(estimate.n_groups, 'group')}"
            yield who, where, f"{estimate.mean:.3f}", interval, n
            who = ""


def _told_differences(result: "RunResult") -> Iterator[str]:
    if result.winner_is_baseline:
        yield "The recommended candidate is the defaults."
        return
    differences: tuple[tuple[Difference | None, str, str], ...] = (
        (result.difference, "held-out case", ""),
        (result.difference_fresh, "search case", ", asked again"),
    )
    for difference, noun, how in differences:
        if difference is not None:
            level = f"{100 * difference.level:g} %"
            yield (
                f"Winner minus defaults: {difference.mean:+.3f} "
                f"[{difference.low:+.3f}, {difference.high:+.3f}] "
                f"({level} interval, {counted(difference, noun)}{how})"
            )
    gate = result.gate
    if gate is not None:
        verdict = {"keep": f"keep the {gate.opponent}"}.get(gate.decision, gate.decision)
        yield (
            f"Promotion gate: {verdict} ({counted(gate, 'held-out case')}, evidence "
            f"{gate.log_e:.2f} of {gate.log_threshold:.2f} nats). {CASES}"
        )
        if gate.decision == "promote":
            yield f"Adopt it: convergence promote {result.label}"
    if not result.has_defaults:
        yield "No parameter has a `default`, so there is nothing to compare the winner with."


def _show_thinking(result: "RunResult") -> None:
    """Print what thoughts were worth, the best of them first."""
    report = result.thinking
    if report is None:
        return
    from tasks.report.rlp_section import lines_of  # noqa: PLC0415 - with the other files of reports

    console.answer("\nThoughts:", style="bold")
    if report.best is not None:
        console.answer(f"  “{' '.join(report.best.text.split())[:LONGEST_THOUGHT]}”")
    for line in lines_of(report):
        console.answer(f"  {line}")
    console.answer(f"  {report.sentence}")


def _show_preferences(result: "RunResult") -> None:
    """Print what preferences came to, and one pair of them."""
    report = result.preferences
    if report is None:
        return
    from tasks.report.sao_section import preference_lines, sample_lines  # noqa: PLC0415 - as above

    console.answer("\nPreferences:", style="bold")
    for name, text in sample_lines(report):
        console.answer(f"  {name}: “{' '.join(text.split())[:LONGEST_THOUGHT]}”")
    for line in preference_lines(report):
        console.answer(f"  {line}")
    console.answer(f"  {report.sentence}")


def _show_failures(result: "RunResult") -> None:
    from tasks.report.phrases import failure_example  # noqa: PLC0415 - brings the report

    if result.failures:
        console.answer("\nFailures:", style="bold")
    for failure in result.failures[:MOST_FAILURES]:
        example = f": {failure_example(failure.example)}" if failure.example else ""
        console.answer(f"  {failure.n:,} times {failure.reason}{example}")


def _show_costs(result: "RunResult") -> None:
    """Print who paid how much, when more than one role or model did."""
    if len(result.costs) < MANY_ROLES:
        return
    columns = ("role", "model", "calls", "reused", "tokens", "USD")
    rows = []
    for cost in result.costs:
        tokens = (cost.prompt_tokens or 0) + (cost.completion_tokens or 0)
        usd = "unknown" if cost.cost_usd is None else f"{cost.cost_usd:.4f}"
        if cost.n_unpriced and cost.cost_usd is not None:
            usd += f" + {cost.n_unpriced:,} unpriced"
        reused = cost.n_reused + cost.n_from_other_runs
        model = cost.model or cost.provider
        rows.append((cost.purpose, model, f"{cost.n_calls:,}", f"{reused:,}", f"{tokens:,}", usd))
    console.answer("")
    console.show(console.simple_table(columns, rows, right=("calls", "reused", "tokens", "USD")))


def _short(params: Mapping[str, object]) -> dict[str, str]:
    return {
        name: shown_value(value, digits=6, longest=LONGEST_VALUE) for name, value in params.items()
    }
