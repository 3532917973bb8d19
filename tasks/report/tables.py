"""Tables of a report that are also used separately: leaderboard and costs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from convergence_core.budget.limits import LimitName, Spent, shown, written
from convergence_core.result import LeaderboardRow, RoleCost, RunResult, number_text
from convergence_core.result.number_text import UNKNOWN, plural
from tasks.report import phrases
from tasks.report.blocks import Block, Columns, Grid, Heading, Inline, Paragraph, code, table
from tasks.report.phrases import clean, named_label, short

if TYPE_CHECKING:  # most reports do not load the configuration
    from convergence_core.config.models import BudgetConfig

# -- leaderboard

CAUTIOUS = "cautious"
"""Column that orders the leaderboard."""
RANKED_BY = "cautious estimate (lower end of the posterior's 68 % interval)"


def leaderboard_grid(result: RunResult, n_rows: int = 20) -> Grid:
    """Return the first rows of the leaderboard."""

    def measured(metric: str) -> Callable[[LeaderboardRow], Inline]:
        return lambda row: phrases.number(row.metrics.get(metric))

    def feasible(row: LeaderboardRow) -> Inline:
        return UNKNOWN if row.feasible is None else number_text.percent(row.feasible)

    columns: dict[str, Callable[[LeaderboardRow], Inline]] = {
        "rank": lambda row: str(row.rank),
        "configuration": lambda row: _named(result, row),
        "posterior mean": lambda row: number_text.interval(row.mean, row.low, row.high),
        CAUTIOUS: lambda row: number_text.reward(row.cautious),
        "keeps constraints": feasible,
        "cases": lambda row: f"{row.n_cases:,}",
        "evaluations": lambda row: f"{row.n_cells:,}",
        "failed": lambda row: f"{row.n_failed:,}",
        "origin": lambda row: short(row.origin),
    }
    for metric in result.metrics:
        name = clean(metric.name)
        columns[f"metric {name}" if name in columns else name] = measured(metric.name)
    columns["origin"] = columns.pop("origin")  # the last column
    if all(row.feasible is None for row in result.leaderboard):
        del columns["keeps constraints"]
    numeric = columns.keys() - {"configuration", "origin"}
    return table(result.leaderboard[:n_rows], columns, numeric=numeric)


def _named(result: RunResult, row: LeaderboardRow) -> str:
    """Return a row's display name, with special roles of its candidate."""
    return named_label(row.label, row.candidate_id) + phrases.special(result, row.candidate_id)


# -- costs and spending


def cost_blocks(costs: Sequence[RoleCost], *, is_offline: bool) -> list[Block]:
    """Return the section on each role's costs; empty if there are none."""
    if not any(_has_numbers(cost) for cost in costs):
        return []
    sentence = " ".join(cost_sentences(costs, is_offline=is_offline))
    return [Heading("Cost"), Paragraph((sentence,), "note"), _costs_grid(costs)]


def _costs_grid(costs: Sequence[RoleCost]) -> Grid:
    """Return a row per role and model."""
    counts = {
        "calls": "n_calls",
        "failed": "n_failed",
        "prompt tokens": "prompt_tokens",
        "cached": "cached_tokens",
        "answer tokens": "completion_tokens",
        "reasoning": "reasoning_tokens",
    }

    def count(name: str) -> Callable[[RoleCost], Inline]:
        return lambda cost: _count(getattr(cost, name))

    columns: Columns[RoleCost] = {
        "role": lambda cost: cost.purpose,
        "model": lambda cost: code(clean(cost.model or cost.provider)),
        "USD": lambda cost: number_text.spent(cost.cost_usd, cost.n_unpriced),
        **{heading: count(name) for heading, name in counts.items()},
    }
    return table(costs, columns, numeric=("USD", *counts))


def _has_numbers(cost: RoleCost) -> bool:
    numbers = (cost.cost_usd, cost.prompt_tokens, cost.completion_tokens)
    return any(n is not None for n in numbers) or cost.n_from_other_runs > 0 or cost.maybe_usd > 0


def cost_sentences(costs: Sequence[RoleCost], *, is_offline: bool) -> list[str]:
    """Return sentences on the calls, and on which were free."""
    n_reused = sum(cost.n_reused for cost in costs)
    n_others = sum(cost.n_from_other_runs for cost in costs)
    maybe = sum(cost.maybe_usd for cost in costs)
    n_calls = sum(cost.n_calls for cost in costs)
    sentences = [
        (True, f"{plural(n_calls, 'call')} made, retries included."),
        (n_reused, f"{plural(n_reused, 'answer')} of this run reused at no cost."),
        (n_others, f"{plural(n_others, 'answer')} of earlier runs reused at no cost."),
        (
            maybe,
            f"At most {number_text.usd(maybe)} more may be paid for calls without a known end.",
        ),
        (is_offline, "The run was offline: these are list prices, and nothing was paid."),
    ]
    return [sentence for applies, sentence in sentences if applies]


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def spending(result: RunResult, limits: "BudgetConfig", spent: Spent) -> list[Block]:
    """Return the spending against each limit, then the costs of each role.

    Args:
        result: result of the run, possibly still in progress.
        limits: limits of the run.
        spent: spending by its journal.
    """
    uses: list[tuple[LimitName, float, float | None]] = [
        ("max_usd", spent.usd, limits.max_usd),
        ("max_calls", spent.calls, limits.max_calls),
        ("max_tokens", spent.tokens, limits.max_tokens),
        ("max_minutes", spent.seconds / 60, limits.max_minutes),
    ]
    columns = {
        "what": lambda use: use[0].removeprefix("max_").replace("usd", "money"),
        "spent": lambda use: shown(use[0], use[1]),
        "limit": lambda use: "none" if use[2] is None else code(written(use[0], use[2])),
        "share": lambda use: "" if use[2] is None else number_text.whole_percent(use[1] / use[2]),
    }
    grid = table(uses, columns, numeric=("spent", "limit", "share"))
    blocks: list[Block] = [Heading("Spending and limits"), grid]
    if spent.n_unpriced:
        unknown = plural(spent.n_unpriced, "call")
        blocks.append(Paragraph((f"The price of {unknown} is unknown: the worst case counts.",)))
    is_offline = bool(result.facts.get("offline"))
    return [*blocks, *cost_blocks(result.costs, is_offline=is_offline)]
