"""Cost estimate of a run: calls, tokens and dollars by role.

The plan of the run gives the number of calls: the least if early stopping ends it as soon as possible,
the most if the run evaluates every planned cell. Tokens and dollars of one call come from earlier runs of
the same system (10 % and 90 % quantiles, and the mean) if its store has any, else from the requests
themselves; see ``convergence.cost_estimate.call_quotes``. An estimate makes no call and writes nothing.
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
from convergence_core.config import Configuration, JudgeMetric
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
    """Estimate of a run."""

    config: str
    """Path of the configuration."""
    system: str
    roles: tuple[RoleEstimate, ...]
    total: RoleEstimate
    """All roles together, within the limits of the budget."""
    notes: tuple[str, ...]
    """Limits of the numbers, and reasons that would stop the run."""
    price_version: str
    plan: Forecast
    calls_with_retries: float | None
    """Most calls, with every allowed retry."""
    unaffordable: str | None
    """Purposes of which `budget.max_usd` affords no call, and the fix; ``None`` if it affords one of each."""

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value."""
        row = asdict(self)
        del row["plan"]  # `validate --json` has it
        for role in (row["total"], *row["roles"]):
            del role["share"]
        return row


def estimate(loaded: "Loaded") -> RunEstimate:
    """Return the estimate of a run of this configuration, without a call.

    Raises:
        ConfigurationError: the target cannot be made, or no model judges.
        StoreError: the store cannot be read.
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
    """Return the usage of earlier runs of the system, by purpose."""
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
    """Return the estimate of a run, given its target and the usage of earlier runs by purpose."""
    configuration = loaded.configuration
    plan = forecast(loaded)
    rounds = rounds_within(configuration, _least_generations(plan, configuration))
    cells = _cells(plan, configuration) + looks_within(rounds, plan.n_holdout_cases)
    metrics = configuration.evaluation.metrics
    judges = {name: metric for name, metric in metrics.items() if metric.type == "llm_judge"}
    # A champion may answer further cases, as the opponent of pairwise judges.
    calls = cells + Range(low=0, expected=0, high=plan.champion_calls)
    quotes = TargetQuotes(loaded, world, target)
    target_role = (
        _agent_role(configuration, calls, past)
        if configuration.api.kind == "agno"
        else _target_role(configuration, target.provider, quotes, calls, past.get("evaluation"))
    )
    roles = [
        target_role,
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
    """Return the number of cells that a run evaluates."""
    n_least = _least_generations(plan, configuration)
    least = -(-plan.n_search_cells * n_least // plan.n_generations) + plan.n_final_cells
    most = plan.n_search_cells + plan.n_final_cells
    low = 0 if configuration.cache.shared else least
    return Range(low=low, expected=(least + most) / 2, high=most)


def _least_generations(plan: Forecast, configuration: Configuration) -> int:
    """Return the least number of generations of a run."""
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
    """Return the cost of the target's calls."""
    unknown = None
    if quotes.is_chat:
        usd = quotes.over(lambda quote: quote.usd(past))
        source = basis(past)
        unknown = _why_unknown(quotes, calibrated=source != OF_REQUESTS)
    elif past is not None and past.usd.expected is not None:
        usd, source = past.usd, calibrated(past)
    else:
        usd = quotes.over(lambda quote: Range.fixed(quote.worst_usd))
        source = "price of a request"
        if usd.high is None:
            kind, source = configuration.api.kind, ""
            unknown = (
                f"the price of a call is unknown. Write `prices: {{{kind}: {{request: …}}}}`."
            )
    return RoleEstimate(
        role="evaluation",
        name=provider,
        calls=calls,
        tokens=calls * quotes.over(lambda quote: quote.tokens(past)),
        usd=UNKNOWN if unknown is not None else calls * usd,
        basis=source,
        unknown=unknown,
        is_guess=source == OF_REQUESTS,
        least_usd=least_cap(quotes.all),
        lowered_by=TARGET_KEY if quotes.is_chat else "",
    )


def _agent_role(
    configuration: Configuration, runs: Range, past: Mapping[str, CallHistory]
) -> RoleEstimate:
    """Return the cost of agents' model calls, from earlier runs."""
    agent_runs, model_calls = past.get("evaluation"), past.get("agent")
    most = configuration.api.agent.max_model_calls
    if agent_runs is None or model_calls is None or agent_runs.n_calls == 0:
        return RoleEstimate(
            role="evaluation",
            name="agno",
            calls=replace(runs * Range.fixed(1 + most), low=runs.low, expected=None),
            tokens=UNKNOWN,
            usd=UNKNOWN,
            basis="",
            unknown=f"an agent calls its models up to {most} times; the first run shows how often.",
        )
    n_calls = Range.fixed(model_calls.n_calls / agent_runs.n_calls)
    return RoleEstimate(
        role="evaluation",
        name="agno",
        calls=runs + runs * n_calls,
        tokens=runs * n_calls * (model_calls.prompt + model_calls.answer),
        usd=runs * n_calls * model_calls.usd,
        basis=calibrated(model_calls),
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
        return "the tokens of pictures, sound or files are unknown before the first run."
    if any(quote.worst_usd is None for quote in quotes.all):
        return "the longest answer is unknown. Set `max_tokens` of the request."
    return None


def _judge_role(
    loaded: "Loaded",
    world: "Environment",
    judge: tuple[str, JudgeMetric],
    target: TargetQuotes,
    *,
    cells: Range,
    past: CallHistory | None,
) -> RoleEstimate:
    """Return the cost of one judge's calls."""
    from tasks.metrics.judge import call_count  # noqa: PLC0415 - brings clients

    name, metric = judge
    calls = cells * Range.fixed(call_count(metric))
    quotes = judge_quotes(loaded, world, name, metric, target)
    unknown = None
    if any(quote.price is None for quote in quotes):
        unknown = no_price(quotes[0].model)
    elif basis(past) == OF_REQUESTS and any(quote.worst_usd is None for quote in quotes):
        unknown = "the length of the judged answers is unknown before the first run."
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
    """Return a sentence on purposes that `budget.max_usd` cannot pay, or ``None``."""
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
    """Return dollars rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(usd)) - 1) if usd > 0 else 1.0
    return dollars(math.ceil(usd / unit - 1e-9) * unit)


def _notes(
    total: RoleEstimate, plan: Forecast, configuration: Configuration, roles: list[RoleEstimate]
) -> Iterator[str]:
    budget, cache = configuration.budget, configuration.cache
    execution = configuration.optimization.execution
    if execution.max_retries:
        yield (
            f"Numbers exclude retries: up to {execution.most_attempts} attempts of a call, "
            f"{execution.max_retries} of them after a fault (max_retries), "
            f"{execution.max_rate_limit_retries} after a rate limit (max_rate_limit_retries)."
        )
    if (judge := judge_note(configuration)) is not None:
        yield f"judge: {judge}."
    if plan.final_shortage is not None:
        yield f"{plan.final_shortage}."
    if cache.shared:
        yield f"Reuses answers of earlier runs at no cost (cache.epoch={cache.epoch})."
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
    for key, limit, amount in (
        ("max_usd", budget.max_usd, total.usd),
        ("max_tokens", budget.max_tokens, total.tokens),
    ):
        likely = amount.expected if is_measured else None
        if limit is None or likely is None or likely <= limit:
            continue
        shown = dollars(likely) if key == "max_usd" else f"{likely:,.0f} tokens"
        yield f"budget.{key}={limit:.12g} will probably stop the run early: {shown} expected."
    is_refused = budget.max_usd is not None and not budget.allow_unknown_prices
    if total.unknown is not None and is_refused:
        yield f"budget.max_usd={budget.max_usd:.12g} refuses calls whose price is unknown."
