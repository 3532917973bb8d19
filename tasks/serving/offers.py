"""Names, offers and posteriors of the store's arms."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from convergence_core.bandit.arms import BetaArms
from convergence_core.bandit.priors import NightlyPrior, WarmArms
from convergence_core.records import Json, canonical_json, sha256_hex
from tasks.store.runtime.rows import ArmOffer, StoredArm


def prob_best(arms: Sequence[StoredArm], trust: float) -> np.ndarray:
    """Return the probability that each arm is the best, (n_arms,)."""
    base_a, base_b, a, b = (
        np.array([getattr(arm, name) for arm in arms])
        for name in ("base_alpha", "base_beta", "alpha", "beta")
    )
    night = BetaArms(prior_alpha=base_a, prior_beta=base_b, alpha=a, beta=b)
    if not any(arm.prior is not None for arm in arms):
        return night.propensities()
    nightly = np.array([arm.prior is not None for arm in arms])
    ones = np.ones(len(arms))
    cold_a, cold_b = np.where(nightly, ones, base_a), np.where(nightly, ones, base_b)
    cold = BetaArms(
        prior_alpha=cold_a,
        prior_beta=cold_b,
        alpha=cold_a + a - base_a,
        beta=cold_b + b - base_b,
    )
    return WarmArms(informed=night, vague=cold, trust_before=trust).propensities()


def arm_id_of(params: Mapping[str, Json]) -> str:
    """Return the default id of an arm, a hash of its parameters."""
    return sha256_hex(canonical_json(dict(params)))[:16]


def offer_of(
    params: Mapping[str, Json],
    arm_id: str | None = None,
    prior: NightlyPrior | None = None,
    cost: float | None = None,
) -> ArmOffer:
    """Return an offer of an arm; prior and cost are optional."""
    return ArmOffer(arm_id=arm_id or arm_id_of(params), params=params, prior=prior, cost=cost)


def decision_id(now_us: int) -> str:
    """Return a UUID of version 7 (RFC 9562), which sorts by milliseconds."""
    value = (now_us // 1_000) << 80 | int.from_bytes(os.urandom(10), "big")
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
