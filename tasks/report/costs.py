"""What a run cost, by role and model, and where its answers came from."""

from convergence_core.result import RoleCost, RunResult
from tasks.report import phrases
from tasks.report.blocks import Block, Code, Grid, Heading, Inline, Paragraph
from tasks.report.phrases import UNKNOWN, clean, plural

COLUMNS = (
    "role",
    "model",
    "USD",
    "calls",
    "failed",
    "prompt tokens",
    "cached",
    "answer tokens",
    "reasoning",
)


def costs(result: RunResult) -> list[Block]:
    """Return the section on money; empty for a run that paid and counted nothing."""
    if not any(_is_worth_telling(cost) for cost in result.costs):
        return []
    rows = tuple(_row(cost) for cost in result.costs)
    return [
        Heading("What it cost"),
        Paragraph((" ".join(_sentences(result)),), "note"),
        Grid(COLUMNS, rows, frozenset(range(2, len(COLUMNS)))),
    ]


def _is_worth_telling(cost: RoleCost) -> bool:
    return (
        cost.cost_usd is not None
        or cost.prompt_tokens is not None
        or cost.completion_tokens is not None
        or cost.n_from_other_runs > 0
        or cost.maybe_usd > 0
    )


def _row(cost: RoleCost) -> tuple[Inline, ...]:
    usd = phrases.usd(cost.cost_usd)
    if cost.n_unpriced:
        usd += f" and {plural(cost.n_unpriced, 'call')} of unknown price"
    return (
        cost.purpose,
        Code(clean(cost.model or cost.provider)),
        usd,
        f"{cost.n_calls:,}",
        f"{cost.n_failed:,}",
        _count(cost.prompt_tokens),
        _count(cost.cached_tokens),
        _count(cost.completion_tokens),
        _count(cost.reasoning_tokens),
    )


def _sentences(result: RunResult) -> list[str]:
    n_calls = sum(cost.n_calls for cost in result.costs)
    n_reused = sum(cost.n_reused for cost in result.costs)
    n_others = sum(cost.n_from_other_runs for cost in result.costs)
    sentences = [f"{plural(n_calls, 'call')} made, retries included."]
    if n_reused:
        sentences.append(f"{plural(n_reused, 'answer')} of this run used again, at no cost.")
    if n_others:
        sentences.append(f"{plural(n_others, 'answer')} paid for by earlier runs, at no cost.")
    maybe = sum(cost.maybe_usd for cost in result.costs)
    if maybe:
        sentences.append(
            f"At most {phrases.usd(maybe)} more was paid for calls whose end nobody saw."
        )
    if result.facts.get("offline"):
        sentences.append("The run was offline: these are list prices, and nothing was paid.")
    return sentences


def _count(number: int | None) -> str:
    return UNKNOWN if number is None else f"{number:,}"
