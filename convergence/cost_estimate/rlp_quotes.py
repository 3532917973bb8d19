"""Quote of thoughts: one call a generation, one more where a reply cannot be read.

The last generations of a search with test cases ask known candidates only, so that there are fewer calls.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np

from convergence.cost_estimate.call_quotes import CallHistory, RoleEstimate, TextModel
from convergence.cost_estimate.ranges import Range
from convergence.cost_estimate.run_forecast import Forecast
from convergence_core.budget.bounds import prompt_bound
from convergence_core.rlp.quantiles import Quantiles

if TYPE_CHECKING:
    from tasks.inputs.environment import Environment
    from tasks.inputs.loader import Loaded

USUAL_REPLY: Final = 600
"""Tokens of notes, eight forecasts and five settings."""
MOST_PROBLEM: Final = 300
"""Characters about a reply that cannot be read."""


def thought_roles(
    loaded: "Loaded", world: "Environment", plan: Forecast, past: Mapping[str, CallHistory]
) -> list[RoleEstimate]:
    """Return the estimate of ``thought`` calls; empty without RLP.

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
    steers = configuration.optimization.algorithm in ("mab_evolution", "thompson")
    n = plan.n_generations if steers else 0
    model = TextModel.of(configuration.llm, None, world)
    return [
        model.role(
            "thought",
            Range(low=0, expected=n, high=2 * n),
            [
                model.quote(prompt, rlp.thought_length, more=MOST_PROBLEM, usual=USUAL_REPLY)
                for prompt in _prompts(loaded, plan)
            ],
            past.get("thought"),
            share=rlp.max_share_usd,
            lowered_by="society.rlp.thought_length",
        )
    ]


def _prompts(loaded: "Loaded", plan: Forecast) -> list[int]:
    """Return the most tokens of prompts of a run: with as many random trials as it may have, and few."""
    from tasks.rlp.factory import prompts_of  # noqa: PLC0415 - brings clients
    from tasks.rlp.prompts import MOST_ROWS, ThoughtRequest, TrialRow  # noqa: PLC0415 - as above

    space, rlp = loaded.space, loaded.configuration.society.rlp
    rng = np.random.default_rng(loaded.configuration.optimization.seed)
    prompts = prompts_of(loaded.configuration)
    bounds = []
    for n in (0, min(MOST_ROWS, plan.n_candidates or MOST_ROWS)):
        sampled = [space.candidate(space.sample(rng)) for _ in range(n + rlp.n_predicted)]
        trials = [
            TrialRow(
                candidate_id=f"{i}-{candidate.candidate_id}",
                params=candidate.params,
                n=100,
                mean=0.12345,
                se=0.00123,
                forecast=Quantiles(0.123, 0.234, 0.345),
            )
            for i, candidate in enumerate(sampled[:n])
        ]
        request = ThoughtRequest(
            generation=1,
            kind="notes" if n else "start",
            space=space,
            around={},
            trials=trials,
            reserved={c.candidate_id: c.params for c in sampled[n:]} if n else {},
            notes="word " * 120,
        )
        bound = prompt_bound({"messages": [*prompts.messages(request)]})
        assert bound is not None  # noqa: S101 - texts only
        bounds.append(bound)
    return bounds
