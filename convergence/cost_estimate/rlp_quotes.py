"""What thoughts and their predictions would cost: each form of asking, at its cheapest and dearest.

Which form a server can stand is known after its probe alone, so the most is that of the dearest form
that the configuration allows. What is expected is that of weights written as JSON, which any model can
do, or, where log-probabilities alone are allowed, that of a chat's next token. The least is nothing: the
policy may choose to think nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from convergence.cost_estimate.call_quotes import BYTES_EXPECTED, BYTES_MOST, CallHistory, Quote
from convergence.cost_estimate.ranges import Range, over
from convergence.cost_estimate.run_forecast import Forecast
from convergence_core.budget import Price, prompt_bound
from convergence_core.config.optimization import RlpConfig
from convergence_core.records import Json
from convergence_core.rlp.bins import N_BINS, TENTHS
from convergence_core.rlp.commitments import Estimator
from convergence_core.rlp.exemplars import MOST
from convergence_core.rlp.history import TrialHistory, TrialSummary
from convergence_core.rlp.strategies import STRATEGIES
from convergence_core.space import Space

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

USUAL_THOUGHT: Final = 270
"""Tokens of the 200 words that a thought is asked for."""
MOST_SEEN: Final = 400
"""Trials that a prompt is written of at most; views show a few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCosts:
    """Calls of one role, in a whole run."""

    calls: Range
    tokens: Range
    usd: Range
    """Unknown: no price is known for the model."""
    model: str
    is_calibrated: bool
    """Whether tokens of a call are those of earlier runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionForm:
    """One form of asking for predictions."""

    n_calls: float
    """In a generation at most."""
    prompt: int
    """Tokens of one call at most, without a thought."""
    answer: int
    """Longest answer, in tokens."""


def thought_costs(
    loaded: "Loaded", world: "Environment", plan: Forecast, past: Mapping[str, CallHistory]
) -> dict[str, RoleCosts]:
    """Return what ``thought`` and ``prediction`` calls would cost; empty where nobody thinks.

    Args:
        loaded: the configuration, its space and its cases.
        world: knows prices.
        plan: of the run.
        past: what earlier runs of the system used, by purpose.
    """
    configuration = loaded.configuration
    if configuration.llm is None or not configuration.society.thinks:
        return {}
    from tasks.providers import billing_provider  # noqa: PLC0415 - brings clients
    from tasks.rlp.channel_probe import allowed_channels  # noqa: PLC0415 - as above

    rlp, llm = configuration.society.rlp, configuration.llm
    if rlp.model_name is not None:
        llm = llm.model_copy(update={"model": rlp.model_name})
    seller, model = billing_provider(llm)
    price = world.prices.find(seller, model)
    history = _history(loaded.space, plan, configuration.optimization.seed)
    n_thinking = max(0, plan.n_generations - 1)  # the first has nothing to think about
    speaks = 1.0 - 1.0 / (len(rlp.strategies) + 1)
    thoughts = _role(
        Range(
            low=0, expected=n_thinking * rlp.n_thoughts * speaks, high=n_thinking * rlp.n_thoughts
        ),
        [
            _quote(model, price, prompt, rlp.thought_length, more=MOST * rlp.thought_length)
            for prompt in _thinking_prompts(loaded.space, history, rlp.strategies)
        ],
        past.get("thought"),
    )
    forms = _forms(loaded.space, history, rlp)
    allowed = [forms[rung] for rung in allowed_channels(rlp.use_logprobs)]
    usual = (
        forms["elicited"] if "elicited" in allowed_channels(rlp.use_logprobs) else forms["chat"]
    )
    expected = _role(
        Range.fixed(n_thinking * speaks * usual.n_calls),
        [_quote(model, price, usual.prompt, usual.answer, more=rlp.thought_length)],
        past.get("prediction"),
    )
    ends = [
        _role(
            Range.fixed(n_thinking * form.n_calls),
            [_quote(model, price, form.prompt, form.answer, more=rlp.thought_length)],
            past.get("prediction"),
        )
        for form in allowed
    ]
    predictions = RoleCosts(
        calls=_between(expected.calls, [end.calls for end in ends]),
        tokens=_between(expected.tokens, [end.tokens for end in ends]),
        usd=_between(expected.usd, [end.usd for end in ends]),
        model=model,
        is_calibrated=expected.is_calibrated,
    )
    limit = configuration.budget.max_usd
    most = None if limit is None else limit * rlp.max_share_usd
    return {
        "thought": replace(thoughts, usd=thoughts.usd.at_most(most)),
        "prediction": replace(predictions, usd=predictions.usd.at_most(most)),
    }


def _role(calls: Range, quotes: Sequence[Quote], past: CallHistory | None) -> RoleCosts:
    return RoleCosts(
        calls=calls,
        tokens=calls.times(over([quote.tokens(past) for quote in quotes])),
        usd=calls.times(over([quote.usd(past) for quote in quotes])),
        model=quotes[0].model or "",
        is_calibrated=past is not None and past.counts_tokens,
    )


def _between(expected: Range, ends: Sequence[Range]) -> Range:
    """Return what is expected, from nothing to the dearest end."""
    highs = [end.high for end in ends]
    known = [high for high in highs if high is not None]
    return Range(
        low=0, expected=expected.expected, high=max(known) if len(known) == len(highs) else None
    )


def _quote(model: str, price: Price | None, prompt: int, answer: int, *, more: int) -> Quote:
    """Return the quote of a call whose prompt may hold so many tokens of thoughts more."""
    low, usual = prompt / BYTES_MOST, prompt / BYTES_EXPECTED + min(more, USUAL_THOUGHT)
    most = prompt + more
    return Quote(
        model=model,
        price=price,
        prompt=Range(low=low, expected=usual, high=most),
        answer=Range(low=0, expected=min(answer, USUAL_THOUGHT), high=answer),
        worst_usd=None if price is None else price.worst_case(most, answer),
        worst_tokens=most + answer,
    )


def _history(space: Space, plan: Forecast, seed: int) -> TrialHistory:
    """Return as many made-up trials as a run may see; prompts are as long as of true ones."""
    rng = np.random.default_rng(seed)
    n = min(MOST_SEEN, plan.n_candidates or MOST_SEEN)
    found = []
    for i in range(max(1, n)):
        candidate = space.candidate(space.sample(rng))
        found.append(
            TrialSummary(
                generation=0,
                candidate_id=f"{i}-{candidate.candidate_id}",
                params=candidate.params,
                reward=float(rng.random()),
                n_cells=100,
                latency_ms=1000.0,
                cost_usd=0.001,
            )
        )
    return TrialHistory(tuple(found))


def _thinking_prompts(space: Space, history: TrialHistory, strategies: Iterable[str]) -> list[int]:
    from tasks.rlp.prompts import RlpPrompts  # noqa: PLC0415 - brings nothing at start

    words = RlpPrompts()
    asked = [words.thinking(STRATEGIES[name], history, space, ()) for name in strategies]
    return [_bound(messages) for messages in asked]


def _forms(space: Space, history: TrialHistory, rlp: RlpConfig) -> dict[Estimator, PredictionForm]:
    """Return each form of asking, with all that it asks in one generation."""
    from tasks.rlp.elicited_channel import ELICITED_LIMIT  # noqa: PLC0415 - as above
    from tasks.rlp.learner import N_OWN, N_RESCORED  # noqa: PLC0415 - brings clients
    from tasks.rlp.prompts import RlpPrompts  # noqa: PLC0415 - as above

    words, m = RlpPrompts(), rlp.n_predicted
    context = words.context(history, space)(None)
    one = words.question(history.trials[0].params, space, TENTHS)
    questions = {f"trial_{i}": one for i in range(m)}
    n_arms = 1 + rlp.n_thoughts + N_RESCORED
    n_requests = n_arms + rlp.n_thoughts  # and each thought's own points
    n_each = n_arms * m + rlp.n_thoughts * N_OWN
    alone = _bound([{"content": f"{context} {one}"}])
    return {
        "chat_echo": PredictionForm(n_calls=N_BINS * n_each, prompt=alone, answer=1),
        "echo": PredictionForm(n_calls=n_each, prompt=N_BINS * alone, answer=0),
        "chat": PredictionForm(n_calls=n_each, prompt=alone, answer=1),
        "elicited": PredictionForm(
            n_calls=n_requests,
            prompt=_bound(words.elicitation(context, questions)),
            answer=ELICITED_LIMIT,
        ),
    }


def _bound(messages: list[dict[str, Json]]) -> int:
    found = prompt_bound({"messages": [*messages]})
    assert found is not None  # noqa: S101 - nothing but texts
    return found
