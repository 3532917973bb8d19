"""Arms as they are offered and believed: names, nightly priors, and who is likely the best."""

from collections.abc import Mapping, Sequence

import numpy as np

from convergence_core.bandit import BetaArms, NightlyPrior, WarmArms
from convergence_core.records import Json, canonical_json, sha256_hex
from convergence_core.store.runtime_rows import ArmOffer, StoredArm


def best_shares(arms: Sequence[StoredArm], trust: float) -> np.ndarray:
    """Return the probability of each arm to be the best, (n_arms,)."""
    base_a, base_b, a, b = (
        np.array([getattr(arm, name) for arm in arms])
        for name in ("base_alpha", "base_beta", "alpha", "beta")
    )
    n = np.array([float(arm.n) for arm in arms])
    night = BetaArms(prior_alpha=base_a, prior_beta=base_b, alpha=a, beta=b, n=n)
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
        n=n,
    )
    return WarmArms(night=night, cold=cold, trust_before=trust).propensities()


def arm_id_of(params: Mapping[str, Json]) -> str:
    """Return the id of an arm that was given without one: a hash of its parameters."""
    return sha256_hex(canonical_json(dict(params)))[:16]


def offer_of(
    params: Mapping[str, Json],
    arm_id: str | None = None,
    prior: NightlyPrior | None = None,
) -> ArmOffer:
    """Return an offer; without a prior there is no opinion."""
    name = arm_id or arm_id_of(params)
    if prior is None:
        return ArmOffer(arm_id=name, params=params)
    return ArmOffer(
        arm_id=name,
        params=params,
        prior_alpha=prior.alpha,
        prior_beta=prior.beta,
        prior={"mean": prior.mean, "sd": prior.sd, "weight": prior.weight},
        run_id=prior.run_id,
    )
