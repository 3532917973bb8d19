"""Tables of a report that also stand alone: leaderboard and costs."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from convergence_core.budget.limits import LimitName, Spent, shown, written
from convergence_core.result import LeaderboardRow, RoleCost, RunResult, number_text
from convergence_core.result.number_text import UNKNOWN, plural
from tasks.report import phrases
from tasks.report.blocks import Block, Code, Columns, Grid, Heading, Inline, Paragraph, table
from tasks.report.phrases import clean, named_label, short

if TYPE_CHECKING:  # a report of most runs does not load the configuration
    from convergence_core.config.models import BudgetConfig

# -- leaderboard

CAUTIOUS = "cautious"
"""Column that rows of the leaderboard are ordered by, where it is known."""
_LEADERBOARD_COLUMNS = (
    *("rank", "configuration", "posterior mean", CAUTIOUS, "keeps constraints"),
    *("cases", "evaluations", "failed", "origin", "id"),
)


def leaderboard_grid(result: RunResult, n_rows: int = 20) -> Grid:
    """Return the first rows of the leaderboard."""
    rows = leaderboard_rows(result, n_rows)
    columns = tuple(rows[0]) if rows else _LEADERBOARD_COLUMNS[:3]
    numeric = frozenset({0, *range(2, len(columns) - 1)} if rows else {0, 2})
    return Grid(columns, tuple(tuple(row.values()) for row in rows), numeric)


def leaderboard_rows(result: RunResult, n: int = 10) -> list[dict[str, str]]:
    """Return the first ``n`` rows of the leaderboard as texts by column."""
    has_cautious = _has_cautious(result)
    has_feasible = any(row.feasible is not None for row in result.leaderboard)
    rows = []
    for row in result.leaderboard[:n]:
        texts = {
            "rank": str(row.rank),
            "configuration": _named(result, row),
            "posterior mean": number_text.interval(row.mean, row.low, row.high),
        }
        if has_cautious:
            texts[CAUTIOUS] = number_text.reward(row.cautious)
        if has_feasible:
            kept = row.feasible
            texts["keeps constraints"] = UNKNOWN if kept is None else number_text.percent(kept)
        texts["cases"] = _count(row.n_cases)
        texts |= {"evaluations": f"{row.n_cells:,}", "failed": f"{row.n_failed:,}"}
        for metric in result.metrics:
            name = clean(metric.name)
            name = f"metric {name}" if name in _LEADERBOARD_COLUMNS else name
            texts[name] = phrases.number(row.metrics.get(metric.name))
        rows.append({**texts, "origin": short(row.origin)})
    return rows


def ranked_by(result: RunResult) -> str:
    """Return what the leaderboard is ordered by, in words."""
    cautious = "cautious estimate (lower end of the posterior's 68 % interval)"
    return cautious if _has_cautious(result) else "posterior mean"


def _has_cautious(result: RunResult) -> bool:
    return any(row.cautious is not None for row in result.leaderboard)


def _named(result: RunResult, row: LeaderboardRow) -> str:
    """Return a row's name for people, with what is special about its candidate."""
    return named_label(row.label, row.candidate_id) + phrases.special(result, row.candidate_id)


# -- costs and spending


def costs(result: RunResult) -> list[Block]:
    """Return the section on money; empty for a run that paid and counted nothing."""
    return cost_blocks(result.costs, is_offline=bool(result.facts.get("offline")))


def cost_blocks(costs: Sequence[RoleCost], *, is_offline: bool) -> list[Block]:
    """Return the section on what each role spent; empty: nothing was paid or counted."""
    if not any(_has_numbers(cost) for cost in costs):
        return []
    sentence = " ".join(cost_sentences(costs, is_offline=is_offline))
    return [Heading("Cost"), Paragraph((sentence,), "note"), _costs_grid(costs)]


def _costs_grid(costs: Sequence[RoleCost]) -> Grid:
    """Return a row for each role and model."""
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
        "model": lambda cost: Code(clean(cost.model or cost.provider)),
        "USD": _usd,
        **{heading: count(name) for heading, name in counts.items()},
    }
    return table(costs, columns, numeric=("USD", *counts))


def _has_numbers(cost: RoleCost) -> bool:
    numbers = (cost.cost_usd, cost.prompt_tokens, cost.completion_tokens)
    return any(n is not None for n in numbers) or cost.n_from_other_runs > 0 or cost.maybe_usd > 0


def _usd(cost: RoleCost) -> str:
    unpriced = plural(cost.n_unpriced, "call")
    return number_text.usd(cost.cost_usd) + (
        f" and {unpriced} of unknown price" if cost.n_unpriced else ""
    )


def cost_sentences(costs: Sequence[RoleCost], *, is_offline: bool) -> list[str]:
    """Return what calls were made, and which of them cost nothing."""
    n_reused = sum(cost.n_reused for cost in costs)
    n_others = sum(cost.n_from_other_runs for cost in costs)
    maybe = sum(cost.maybe_usd for cost in costs)
    n_calls = sum(cost.n_calls for cost in costs)
    offline = "The run was offline: these are list prices, and nothing was paid."
    sentences = [
        (True, f"{plural(n_calls, 'call')} made, retries included."),
        (n_reused, f"{plural(n_reused, 'answer')} of this run reused at no cost."),
        (n_others, f"{plural(n_others, 'answer')} of earlier runs reused at no cost."),
        (
            maybe,
            f"At most {number_text.usd(maybe)} more may be paid for calls without a known end.",
        ),
        (is_offline, offline),
    ]
    return [sentence for applies, sentence in sentences if applies]


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"


def spending(result: RunResult, limits: "BudgetConfig", spent: Spent) -> list[Block]:
    """Return each limit with what is spent of it, then what each role spent.

    Args:
        result: of the run, also of one that continues.
        limits: what it may spend.
        spent: what its journal knows.
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
        "limit": lambda use: "none" if use[2] is None else Code(written(use[0], use[2])),
        "share": lambda use: "" if use[2] is None else number_text.whole_percent(use[1] / use[2]),
    }
    grid = table(uses, columns, numeric=("spent", "limit", "share"))
    blocks: list[Block] = [Heading("Spending and limits"), grid]
    if spent.n_unpriced:
        unknown = plural(spent.n_unpriced, "call")
        blocks.append(Paragraph((f"The price of {unknown} is unknown: the worst case counts.",)))
    return [*blocks, *costs(result)]
