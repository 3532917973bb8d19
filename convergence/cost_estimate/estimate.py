"""Cost estimate of a run: calls, tokens and dollars by role.

Calls follow from the plan of the run: the least when early stopping ends it as soon as it may, the
most when every planned cell is asked. Tokens and dollars of one call come from earlier runs of the
same system where its store has any (10 % and 90 % quantiles, and the mean), else from the requests
themselves; see ``convergence.cost_estimate.call_quotes``. Nothing is called and nothing is written.
"""

import asyncio
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from convergence.cost_estimate.call_quotes import (
    OF_REQUESTS,
    TARGET_KEY,
    CallHistory,
    RoleEstimate,
    TargetQuotes,
    basis,
    calibrated,
    history_of,
    judge_quotes,
    least_cap,
    no_price,
)
from convergence.cost_estimate.games_quotes import game_roles, looks_within, rounds_within
from convergence.cost_estimate.ranges import UNKNOWN, Range, over
from convergence.cost_estimate.rlp_quotes import thought_roles
from convergence.cost_estimate.run_forecast import Forecast, forecast
from convergence.cost_estimate.writing_quotes import writing_roles
from convergence_core.budget.terms import dollars
from convergence_core.config import Configuration, MetricConfig
from convergence_core.config.evaluation_rules import check_judges, judge_note
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

    config: str
    """Path of the configuration."""
    system: str
    roles: tuple[RoleEstimate, ...]
    total: RoleEstimate
    """All roles together, within the limits of the budget."""
    notes: tuple[str, ...]
    """What the numbers leave out, and what would stop the run."""
    price_version: str
    plan: Forecast
    calls_with_retries: float | None
    """Calls at most when each is repeated as often as allowed."""
    unaffordable: str | None
    """Purposes of which `budget.max_usd` affords no call, and what to do; ``None``: it affords one of each."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        found = asdict(self)
        del found["plan"]  # `validate --json` tells it
        for role in (found["total"], *found["roles"]):
            del role["share"]
        return found


def estimate(loaded: "Loaded") -> RunEstimate:
    """Return what a run of this configuration would cost; calls nothing.

    Raises:
        ConfigurationError: the target cannot be made, or no model judges.
        StoreError: there is a store, and it cannot be read.
    """
    from tasks.inputs.environment import Environment  # noqa: PLC0415 - as above
    from tasks.inputs.factories import make_target  # noqa: PLC0415 - brings clients

    check_judges(loaded.configuration)
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
        *writing_roles(loaded, world, plan, quotes, past),
        *game_roles(loaded, world, rounds, quotes, past),
    ]
    budget, execution = configuration.budget, configuration.optimization.execution
    if (most_usd := budget.max_usd) is not None:
        roles = [
            role
            if role.share is None
            else replace(role, usd=role.usd.at_most(role.share * most_usd))
            for role in roles
        ]
    total = _total(roles, configuration)
    most = sum((role.calls for role in roles), Range.fixed(0)) * Range.fixed(
        execution.most_attempts
    )
    usd = total.usd if total.unknown is not None else total.usd.at_most(budget.max_usd)
    return RunEstimate(
        config=str(loaded.config_path),
        system=configuration.api.name,
        roles=tuple(roles),
        total=replace(total, tokens=total.tokens.at_most(budget.max_tokens), usd=usd),
        notes=tuple(_notes(total, plan, configuration, roles)),
        price_version=world.prices.version,
        plan=plan,
        calls_with_retries=most.at_most(budget.max_calls).high,
        unaffordable=_unaffordable(roles, configuration),
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
        usd = quotes.over(lambda quote: quote.usd(past))
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
        is_guess=rests_on == OF_REQUESTS,
        least_usd=least_cap(quotes.all),
        lowered_by=TARGET_KEY if quotes.is_chat else "",
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
        is_guess=basis(past) == OF_REQUESTS,
        least_usd=least_cap(quotes),
        lowered_by="llm.max_tokens",
    )


def _total(roles: list[RoleEstimate], configuration: Configuration) -> RoleEstimate:
    nothing = Range.fixed(0)
    return RoleEstimate(
        role="total",
        calls=sum((r.calls for r in roles), nothing).at_most(configuration.budget.max_calls),
        tokens=sum((role.tokens for role in roles), nothing),
        usd=sum((role.usd for role in roles), nothing),
        unknown=next((role.unknown for role in roles if role.unknown is not None), None),
        least_usd=max((r.least_usd for r in roles if r.least_usd is not None), default=None),
    )


def _unaffordable(roles: list[RoleEstimate], configuration: Configuration) -> str | None:
    """Return which purposes `budget.max_usd` affords no call of, in a sentence."""
    limit = configuration.budget.max_usd
    short = [
        r for r in roles if limit is not None and r.least_usd is not None and r.least_usd > limit
    ]
    if not short:
        return None
    each = "; ".join(
        f"{role.role} from {_rounded_up(role.least_usd or 0)}"
        + (f" (lower `{role.lowered_by}`)" if role.lowered_by else "")
        for role in short
    )
    return f"budget.max_usd={limit:.12g} affords no call of {each}."


def _rounded_up(usd: float) -> str:
    """Return dollars with two digits, never less than they are."""
    unit = 10.0 ** (math.floor(math.log10(usd)) - 1) if usd > 0 else 1.0
    return dollars(math.ceil(usd / unit - 1e-9) * unit)


def _notes(
    total: RoleEstimate, plan: Forecast, configuration: Configuration, roles: list[RoleEstimate]
) -> Iterator[str]:
    budget, cache = configuration.budget, configuration.cache
    execution = configuration.optimization.execution
    if execution.max_retries:
        yield (
            f"Without retries: a call is attempted up to {execution.most_attempts} times, "
            f"{execution.max_retries} of them after a fault (max_retries), "
            f"{execution.max_rate_limit_retries} after a rate limit (max_rate_limit_retries)."
        )
    if (judge := judge_note(configuration)) is not None:
        yield f"judge: {judge}."
    if plan.final_shortage is not None:
        yield f"{plan.final_shortage}."
    if cache.shared:
        yield f"Answers of earlier runs are used again and cost nothing (cache.epoch={cache.epoch})."
    if total.least_usd:
        dearest = max(roles, key=lambda role: role.least_usd or 0.0)
        lower = f"; `{dearest.lowered_by}` lowers it" if dearest.lowered_by else ""
        yield (
            f"The smallest budget.max_usd that affords a call of each purpose: "
            f"{_rounded_up(total.least_usd)}, for {dearest.role}{lower}."
        )
    if (short := _unaffordable(roles, configuration)) is not None:
        yield short
    is_measured = not any(role.is_guess for role in roles)
    for key, limit, found in (
        ("max_usd", budget.max_usd, total.usd),
        ("max_tokens", budget.max_tokens, total.tokens),
    ):
        likely = found.expected if is_measured else None
        if limit is None or likely is None or likely <= limit:
            continue
        shown = dollars(likely) if key == "max_usd" else f"{likely:,.0f} tokens"
        yield f"budget.{key}={limit:.12g} will probably stop the run early: {shown} expected."
    is_refused = budget.max_usd is not None and not budget.allow_unknown_prices
    if total.unknown is not None and is_refused:
        yield f"budget.max_usd={budget.max_usd:.12g} refuses calls whose price is unknown."
