"""Quotes of thoughts and their predictions, for each form of request.

Only a probe shows which form a server supports, so the most is that of the most expensive allowed form.
Expected are weights as JSON, which any model can write, or a chat's next token if the configuration allows
only log-probabilities. The least is 0: the policy may choose not to think.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from convergence.cost_estimate.call_quotes import CallHistory, RoleEstimate, TextModel
from convergence.cost_estimate.ranges import Range, over
from convergence.cost_estimate.run_forecast import Forecast
from convergence_core.budget.bounds import prompt_bound
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
"""Tokens of a thought of 200 words."""
N_PROBES: Final = 4 * N_BINS + 1 + 6 + 4 + 1
"""Calls of the probe of a server's forms, at most once in a run."""
MOST_SEEN: Final = 400
"""Most trials behind a prompt; views show a few of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionForm:
    """Form of a request for predictions."""

    n_calls: float
    """Most calls in a generation."""
    prompt: int
    """Most tokens of one call, without a thought."""
    answer: int
    """Longest answer, in tokens."""


def thought_roles(
    loaded: "Loaded", world: "Environment", plan: Forecast, past: Mapping[str, CallHistory]
) -> list[RoleEstimate]:
    """Return the estimates of ``thought`` and ``prediction`` calls; empty without RLP.

    Args:
        loaded: the configuration, its space and its cases.
        world: the prices.
        plan: size of the run.
        past: usage of earlier runs of the system, by purpose.
    """
    configuration = loaded.configuration
    if configuration.llm is None or not configuration.society.thinks:
        return []
    rlp = configuration.society.rlp
    model = TextModel.of(configuration.llm, None, world)
    quote = partial(model.quote, usual=USUAL_THOUGHT)
    role = partial(model.role, share=rlp.max_share_usd, lowered_by="society.rlp.thought_length")
    history = _history(loaded.space, plan, configuration.optimization.seed)
    n_thinking = max(0, plan.n_generations - 1)  # the first has no trials
    speaks = 1.0 - 1.0 / (len(STRATEGIES) + 1)
    n_most = n_thinking * rlp.n_thoughts
    thoughts = role(
        "thought",
        Range(low=0, expected=n_most * speaks, high=n_most),
        [
            quote(prompt, rlp.thought_length, more=MOST * rlp.thought_length)
            for prompt in _thinking_prompts(loaded.space, history)
        ],
        past.get("thought"),
    )
    allowed, usual = _forms(loaded.space, history, rlp)

    def predicting(form: PredictionForm, share: float) -> RoleEstimate:
        request = quote(form.prompt, form.answer, more=rlp.thought_length)
        calls = Range.fixed(n_thinking * share * form.n_calls)
        return role("prediction", calls, [request], past.get("prediction"))

    expected, ends = predicting(usual, speaks), [predicting(form, 1.0) for form in allowed]
    calls = _between(expected.calls, [end.calls for end in ends])
    predictions = replace(
        expected,
        calls=calls + Range(low=0, expected=0, high=N_PROBES if n_thinking else 0),
        tokens=_between(expected.tokens, [end.tokens for end in ends]),
        usd=_between(expected.usd, [end.usd for end in ends]),
    )
    return [thoughts, predictions]


def _between(expected: Range, ends: Sequence[Range]) -> Range:
    """Return the expected number, from 0 to the highest end."""
    return Range(low=0, expected=expected.expected, high=over(ends).high)


def _history(space: Space, plan: Forecast, seed: int) -> TrialHistory:
    """Return random trials, as many as a run may have, so that prompts get their length."""
    rng = np.random.default_rng(seed)
    n = min(MOST_SEEN, plan.n_candidates or MOST_SEEN)
    trials = []
    for i in range(max(1, n)):
        candidate = space.candidate(space.sample(rng))
        trials.append(
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
    return TrialHistory(tuple(trials))


def _thinking_prompts(space: Space, history: TrialHistory) -> list[int]:
    from tasks.rlp.prompts import RlpPrompts  # noqa: PLC0415 - brings nothing at start

    words = RlpPrompts()
    prompts = [words.thinking(strategy, history, space, ()) for strategy in STRATEGIES.values()]
    return [_bound(messages) for messages in prompts]


def _forms(
    space: Space, history: TrialHistory, rlp: RlpConfig
) -> tuple[list[PredictionForm], PredictionForm]:
    """Return the allowed forms, and the usual one."""
    from tasks.rlp.channel_probe import allowed_channels  # noqa: PLC0415 - brings clients
    from tasks.rlp.elicited_channel import ELICITED_LIMIT  # noqa: PLC0415 - as above
    from tasks.rlp.learner import N_REGION_POINTS, N_RESCORED  # noqa: PLC0415 - brings clients
    from tasks.rlp.prompts import RlpPrompts  # noqa: PLC0415 - as above

    words, m = RlpPrompts(), rlp.n_predicted
    context = words.context(history, space)(None)
    question = words.question(history.trials[0].params, space, TENTHS)
    questions = {f"trial_{i}": question for i in range(m)}
    n_arms = 1 + rlp.n_thoughts + N_RESCORED
    n_requests = n_arms + rlp.n_thoughts  # and the points of each thought
    n_each = n_arms * m + rlp.n_thoughts * N_REGION_POINTS
    alone = _bound([{"content": f"{context} {question}"}])
    forms: dict[Estimator, PredictionForm] = {
        "chat_echo": PredictionForm(n_calls=N_BINS * n_each, prompt=alone, answer=1),
        "echo": PredictionForm(n_calls=n_each, prompt=N_BINS * alone, answer=0),
        "chat": PredictionForm(n_calls=n_each, prompt=alone, answer=1),
        "elicited": PredictionForm(
            n_calls=n_requests,
            prompt=_bound(words.elicitation(context, questions)),
            answer=ELICITED_LIMIT,
        ),
    }
    names = allowed_channels(rlp.use_logprobs)
    usual = forms["elicited" if "elicited" in names else "chat"]
    return [forms[name] for name in names], usual


def _bound(messages: list[dict[str, Json]]) -> int:
    bound = prompt_bound({"messages": [*messages]})
    assert bound is not None  # noqa: S101 - texts only
    return bound
