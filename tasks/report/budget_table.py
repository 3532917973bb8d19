"""What was spent against what may be, for those who watch a run."""

from convergence_core.budget.limits import Limits, Spent
from convergence_core.budget.phrases import LimitName, shown, written
from convergence_core.result import RunResult
from tasks.report import phrases
from tasks.report.blocks import Block, Code, Grid, Heading, Inline, Paragraph
from tasks.report.costs import costs
from tasks.report.markdown import markdown_of


def spending_markdown(result: RunResult, limits: Limits, spent: Spent) -> str:
    """Return each limit with what is spent of it, then who spent it, as Markdown.

    Args:
        result: of the run, also of one that goes on.
        limits: what it may spend.
        spent: what its journal knows.
    """
    return markdown_of([*_against_limits(limits, spent), *costs(result)])


def _against_limits(limits: Limits, spent: Spent) -> list[Block]:
    rows = [_row(*use) for use in _uses(limits, spent)]
    blocks: list[Block] = [
        Heading("Spent, and what may be"),
        Grid(("what", "spent", "limit", "share"), tuple(rows), frozenset({1, 2, 3})),
    ]
    if spent.n_unpriced:
        unknown = phrases.plural(spent.n_unpriced, "call")
        blocks.append(Paragraph((f"The price of {unknown} is unknown: the worst case counts.",)))
    return blocks


def _uses(limits: Limits, spent: Spent) -> list[tuple[LimitName, float, float | None]]:
    minutes = None if limits.max_seconds is None else limits.max_seconds / 60
    return [
        ("max_usd", spent.usd, limits.max_usd),
        ("max_calls", spent.calls, limits.max_calls),
        ("max_tokens", spent.tokens, limits.max_tokens),
        ("max_minutes", spent.seconds / 60, minutes),
    ]


def _row(name: LimitName, used: float, limit: float | None) -> tuple[Inline, ...]:
    what = name.removeprefix("max_").replace("usd", "money")
    if limit is None:
        return what, shown(name, used), "none", ""
    share = f"{used / limit:.0%}"
    return what, shown(name, used), Code(written(name, limit)), share
