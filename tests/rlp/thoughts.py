"""Thoughts, commitments and worlds as the tests of RLP make them up."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from convergence_core.rlp.commitments import Commitment, Thought
from convergence_core.rlp.gain import shows_help
from convergence_core.rlp.learner import RlpState
from convergence_core.rlp.policy import N_FEATURES
from convergence_core.rlp.quantiles import Quantiles, Z


def normal(mean: float, sd: float) -> Quantiles:
    """Return the quantiles of a normal distribution."""
    return Quantiles(mean - Z * sd, mean, mean + Z * sd)


def a_thought(forecasts: Mapping[str, Quantiles] | None = None, **more: Any) -> Thought:
    """Return a thought with notes and a reply."""
    settings: dict[str, Any] = {
        "thought_id": "t", "generation": 0, "kind": "notes", "log_propensity": float(np.log(2 / 3)),
        "text": "x", "forecasts": dict(forecasts or {}), **more,
    }  # fmt: skip
    return Thought(**settings)


def a_commitment(
    forecasts: Mapping[str, Quantiles], posterior: Mapping[str, Quantiles], **more: Any
) -> Commitment:
    """Return forecasts of a thought and of the posterior."""
    thought = a_thought(forecasts, **more)
    return Commitment(
        generation=thought.generation,
        state=np.eye(N_FEATURES)[0],
        thought=thought,
        subjects=tuple(posterior),
        posterior=posterior,
        committed_us=5,
    )


def helps(state: RlpState) -> bool:
    """Whether it may be said that thoughts help."""
    mean = float(np.mean(state.gains)) if state.gains else None
    return shows_help(mean, state.evidence.top_e_value, state.resolution.top_e_value)
