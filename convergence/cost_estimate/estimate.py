"""Cost estimate of a run: calls, tokens and dollars by role.

Calls follow from the plan of the run: the least when early stopping ends it as soon as it may, the
most when every planned cell is asked. Tokens and dollars of one call come from earlier runs of the
same system where its store has any (10 % and 90 % quantiles, and the mean), else from the requests
themselves; see ``convergence.cost_estimate.call_quotes``. Nothing is called and nothing is written.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from convergence.cost_estimate.call_quotes import (
    OF_REQUESTS,
    CallHistory,
    RoleEstimate,
    TargetQuotes,
    basis,
    calibrated,
    history_of,
    judge_quotes,
    no_price,
)
from convergence.cost_estimate.games_quotes import game_roles, looks_within, rounds_within
from convergence.cost_estimate.ranges import UNKNOWN, Range, over
from convergence.cost_estimate.rlp_quotes import thought_roles
from convergence.cost_estimate.run_forecast import Forecast, forecast
from convergence_core.budget.terms import dollars
from convergence_core.config import Configuration, MetricConfig
from convergence_core.config.prompts import N_REQUESTS
from convergence_core.ports import Target

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

_HISTORY = """
    SELECT a.purpose, count(*) AS n_calls, count(DISTINCT a.run_id) AS n_runs,
           count(a.tokens_in) AS n_in, count(a.tokens_out) AS n_out, count(a.cost_usd) AS n_usd,
           quantile_cont(a.tokens_in, [0.1, 0.9]) AS q_in, avg(a.tokens_in) AS mean_in,
           quantile_cont(a.tokens_out, [0.1, 0.9]) AS q_out, avg(a.tokens_out) AS mean_out,
           quantile_cont(a.cost_usd, [0.1, 0.9]) AS q_usd, avg(a.cost_usd) AS mean_usd,
           avg(a.cached_tokens) AS mean_cached
    FROM attempts a JOIN runs r USING (run_id)
    WHERE r.name = $name AND a.state = 'done' GROUP BY a.purpose"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEstimate:
    """What a run would be."""

    system: str
    roles: tuple[RoleEstimate, ...]
    total: RoleEstimate
    """All roles together, within the limits of the budget."""
    notes: tuple[str, ...]
    """What the numbers leave out, and what would stop the run."""
    price_version: str

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        return asdict(self)


def estimate(loaded: "Loaded") -> RunEstimate:
    """Return what a run of this configuration would cost; calls nothing.

    Raises:
        ConfigurationError: the target cannot be made.
        StoreError: there is a store, and it cannot be read.
    """
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - as above
    from tasks.inputs.factories import make_target  # noqa: PLC0415 - brings clients

    world = Environment.unchecked(loaded.configuration)
    target = make_target(loaded, world)
    try:
        return estimate_from(loaded, world, target, histories(loaded))
    finally:
        asyncio.run(target.aclose())


def histories(loaded: "Loaded") -> dict[str, CallHistory]:
    """Return what earlier runs of the system used, by purpose; empty where there are none."""
    path = loaded.base_dir / loaded.configuration.storage.folder
    if not (path / "store.json").is_file():
        return {}
    from tasks.store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    store = ParquetStore(path)
    try:
        rows = store.rows(_HISTORY, {"name": loaded.configuration.api.name})
    finally:
        store.close()
    return {str(row["purpose"]): history_of(row) for row in rows}


def estimate_from(
    loaded: "Loaded", world: "Environment", target: Target, past: Mapping[str, CallHistory]
) -> RunEstimate:
    """Return what a run would cost, given its target and what earlier runs used by purpose."""
    configuration = loaded.configuration
    plan = forecast(loaded)
    rounds = rounds_within(configuration, _least_generations(plan, configuration))
    cells = _cells(plan, configuration) + looks_within(rounds, plan.n_holdout_cases)
    metrics = configuration.evaluation.metrics
    judges = {name: metric for name, metric in metrics.items() if metric.type == "llm_judge"}
    # A champion may have to answer cases that no cell of its own asks.
    asked = cells + Range(low=0, expected=0, high=plan.champion_calls)
    quotes = TargetQuotes(loaded, world, target)
    of_target = (
        _agent_role(configuration, asked, past)
        if configuration.api.kind == "agno"
        else _target_role(configuration, target.provider, quotes, asked, past.get("evaluation"))
    )
    roles = [
        of_target,
        *(
            _judge_role(loaded, world, judge, quotes, cells=cells, past=past.get("judge"))
            for judge in judges.items()
        ),
        *thought_roles(loaded, world, plan, past),
        *game_roles(loaded, world, rounds, quotes, past),
    ]
    total = _total(roles, configuration)
    budget = configuration.budget
    usd = total.usd if total.unknown is not None else total.usd.at_most(budget.max_usd)
    return RunEstimate(
        system=configuration.api.name,
        roles=tuple(roles),
        total=replace(total, tokens=total.tokens.at_most(budget.max_tokens), usd=usd),
        notes=tuple(_notes(total, plan, configuration)),
        price_version=world.prices.version,
    )


def _cells(plan: Forecast, configuration: Configuration) -> Range:
    """Return how many cells a run asks."""
    n_least = _least_generations(plan, configuration)
    least = -(-plan.n_search_cells * n_least // plan.n_generations) + plan.n_final_cells
    most = plan.n_search_cells + plan.n_final_cells
    low = 0 if configuration.cache.shared else least
    return Range(low=low, expected=(least + most) / 2, high=most)


def _least_generations(plan: Forecast, configuration: Configuration) -> int:
    """Return how many generations a run has at least."""
    stopping = configuration.optimization.execution.early_stopping
    if not stopping.enabled or configuration.evaluation.objective != "reward":
        return plan.n_generations
    # The first generation has a leader; ``patience`` flat ones after it end the run.
    return min(plan.n_generations, stopping.patience + 1)


def _target_role(
    configuration: Configuration,
    provider: str,
    quotes: TargetQuotes,
    calls: Range,
    past: CallHistory | None,
) -> RoleEstimate:
    """Return what the calls of the target cost."""
    unknown = None
    if quotes.is_chat:
        batch = configuration.api.batch_prices
        usd = quotes.over(lambda quote: quote.usd(past, batch=batch))
        rests_on = basis(past)
        unknown = _why_unknown(quotes, calibrated=rests_on != OF_REQUESTS)
    elif past is not None and past.usd.expected is not None:
        usd, rests_on = past.usd, calibrated(past)
    else:
        usd = quotes.over(lambda quote: Range.fixed(quote.worst_usd))
        rests_on = "price of a request"
        if usd.high is None:
            kind, rests_on = configuration.api.kind, ""
            unknown = f"what a call costs is not told. Write `prices: {{{kind}: {{request: …}}}}`."
    return RoleEstimate(
        role="evaluation",
        name=provider,
        calls=calls,
        tokens=calls * quotes.over(lambda quote: quote.tokens(past)),
        usd=UNKNOWN if unknown is not None else calls * usd,
        basis=rests_on,
        unknown=unknown,
    )


def _agent_role(
    configuration: Configuration, runs: Range, past: Mapping[str, CallHistory]
) -> RoleEstimate:
    """Return what the model calls of agents cost, by those of earlier runs."""
    made, of_models = past.get("evaluation"), past.get("agent")
    most = configuration.api.agent.max_model_calls
    if made is None or of_models is None or made.n_calls == 0:
        return RoleEstimate(
            role="evaluation",
            name="agno",
            calls=replace(runs * Range.fixed(1 + most), low=runs.low, expected=None),
            tokens=UNKNOWN,
            usd=UNKNOWN,
            basis="",
            unknown=f"how often an agent asks its models, up to {most} times a run, is known after the first run.",
        )
    n_calls = Range.fixed(of_models.n_calls / made.n_calls)
    return RoleEstimate(
        role="evaluation",
        name="agno",
        calls=runs + runs * n_calls,
        tokens=runs * n_calls * (of_models.prompt + of_models.answer),
        usd=runs * n_calls * of_models.usd,
        basis=calibrated(of_models),
        unknown=None,
    )


def _why_unknown(quotes: TargetQuotes, *, calibrated: bool) -> str | None:
    if not quotes.all:
        return f"no request can be made: {quotes.refused}"
    nameless = sorted({str(quote.model) for quote in quotes.all if quote.price is None})
    if nameless:
        return no_price(", ".join(nameless))
    if calibrated:
        return None
    if any(quote.prompt.high is None for quote in quotes.all):
        return "how many tokens pictures, sound or files are is not known before the first run."
    if any(quote.worst_usd is None for quote in quotes.all):
        return "the longest answer is not known. Set `max_tokens` of the request."
    return None


def _judge_role(
    loaded: "Loaded",
    world: "Environment",
    judge: tuple[str, MetricConfig],
    target: TargetQuotes,
    *,
    cells: Range,
    past: CallHistory | None,
) -> RoleEstimate:
    """Return what the calls of one judge cost."""
    from tasks.metrics.judge import call_count  # noqa: PLC0415 - brings clients

    name, metric = judge
    calls = cells * Range.fixed(call_count(metric))
    quotes = judge_quotes(loaded, world, name, metric, target)
    unknown = None
    if any(quote.price is None for quote in quotes):
        unknown = no_price(quotes[0].model)
    elif basis(past) == OF_REQUESTS and any(quote.worst_usd is None for quote in quotes):
        unknown = "how long the answers are that it judges is not known before the first run."
    usd = calls * over([quote.usd(past) for quote in quotes])
    return RoleEstimate(
        role="judge",
        name=name,
        calls=calls,
        tokens=calls * over([quote.tokens(past) for quote in quotes]),
        usd=UNKNOWN if unknown is not None else usd,
        basis=basis(past),
        unknown=unknown,
    )


def _total(roles: list[RoleEstimate], configuration: Configuration) -> RoleEstimate:
    nothing = Range.fixed(0)
    return RoleEstimate(
        role="total",
        calls=sum((r.calls for r in roles), nothing).at_most(configuration.budget.max_calls),
        tokens=sum((role.tokens for role in roles), nothing),
        usd=sum((role.usd for role in roles), nothing),
        unknown=next((role.unknown for role in roles if role.unknown is not None), None),
    )


def _notes(total: RoleEstimate, plan: Forecast, configuration: Configuration) -> Iterator[str]:
    budget, cache = configuration.budget, configuration.cache
    execution = configuration.optimization.execution
    if execution.max_retries:
        yield (
            f"Without retries: a call is attempted up to {execution.most_attempts} times, "
            f"{execution.max_retries} of them after a fault (max_retries), "
            f"{execution.max_rate_limit_retries} after a rate limit (max_rate_limit_retries)."
        )
    if plan.final_shortage is not None:
        yield f"{plan.final_shortage}."
    if cache.shared:
        yield f"Answers of earlier runs are used again and cost nothing (cache.epoch={cache.epoch})."
    society = configuration.society
    if society.prefers and configuration.llm is not None:
        most = (
            "as much as they need"
            if budget.max_usd is None
            else dollars(society.sao.max_share_usd * budget.max_usd)
        )
        yield f"Preferences are not in these numbers: they may use {most}."
    if society.thinks and configuration.llm is not None and budget.max_usd is not None:
        shared = dollars(society.rlp.max_share_usd * budget.max_usd)
        yield f"Thoughts and predictions together use {shared} at most."
    yield from _of_writing(configuration)
    for key, limit, found in (
        ("max_usd", budget.max_usd, total.usd),
        ("max_tokens", budget.max_tokens, total.tokens),
    ):
        if limit is None or found.high is None or found.high <= limit:
            continue
        likely = found.expected is not None and found.expected > limit
        amount = found.expected if likely else found.high
        shown = dollars(amount or 0) if key == "max_usd" else f"{amount:,.0f} tokens"
        word = "will probably stop the run early" if likely else "may stop the run early"
        yield (f"budget.{key}={limit:.12g} {word}: {shown} {'expected' if likely else 'at most'}.")
    is_refused = budget.max_usd is not None and not budget.allow_unknown_prices
    if total.unknown is not None and is_refused:
        yield f"budget.max_usd={budget.max_usd:.12g} refuses calls whose price is unknown."


def _of_writing(configuration: Configuration) -> Iterator[str]:
    """Yield what written texts may cost."""
    prompts, budget = configuration.prompts, configuration.budget
    n_before = max(0, configuration.optimization.evolution.generations - 1)
    n_texts = prompts.n_texts * -(-n_before // prompts.every)
    if configuration.embeds_prompts:
        yield (
            f"Directions of texts are not in these numbers: one call of `{prompts.embedding_model}` for each given text, "
            f"and for {n_texts} written ones at most."
        )
    if not configuration.writes_prompts or prompts.writer == "rules":
        return
    most = (
        "as much as they need"
        if budget.max_usd is None
        else f"{dollars(prompts.max_share_usd * budget.max_usd)} at most"
    )
    yield (
        f"Written texts are not in these numbers: {N_REQUESTS * n_texts} calls at most, of them "
        f"{(N_REQUESTS - 1) * n_texts} in place of refused texts, may use {most}."
    )
