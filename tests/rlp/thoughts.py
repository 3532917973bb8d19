"""Thoughts, commitments and predictions as the tests of RLP make them up."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr

from convergence_core.rlp.bins import TENTHS, RewardBins, normalized
from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.rlp.gain import shows_help
from convergence_core.rlp.learner import RlpState


def binned_normal(mean: float, sd: float, bins: RewardBins = TENTHS) -> np.ndarray:
    """Return the bins of a normal prediction, (N_BINS,); what lies outside goes to the ends."""
    below = ndtr((bins.edges[1:-1] - mean) / sd)
    return normalized(np.diff(np.concatenate([[0.0], below, [1.0]])))


def a_thought(name: str = "t", **more: Any) -> Thought:
    """Return a thought with a text, drawn in the generation 0."""
    settings: dict[str, Any] = {
        "generation": 0, "index": 0, "action": 1, "strategy": "s", "log_old": 0.0, "text": "x", **more,
    }  # fmt: skip
    return Thought(thought_id=name, **settings)


def a_commitment(
    forecasts: Mapping[str, np.ndarray],
    without: Mapping[str, np.ndarray],
    *,
    thought: Thought | None = None,
    **more: Any,
) -> Commitment:
    """Return what one thought predicts, and both halves of the baseline without it."""
    thought = thought or a_thought()
    settings: dict[str, Any] = {"estimator": "echo", "subjects": tuple(forecasts), **more}
    return Commitment(
        generation=thought.generation,
        state=np.ones(7),
        thoughts=(thought,),
        forecasts={thought.thought_id: forecasts},
        no_thought=without,
        statistical=without,
        **settings,
    )


def helps(state: RlpState) -> bool:
    """Whether it may be said that thoughts help."""
    mean = float(np.mean(state.gains)) if state.gains else None
    return shows_help(mean, state.evidence.top_e_value, state.resolution.top_e_value)
