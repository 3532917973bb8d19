"""Promotion at run time: the candidate on offer with its prior and guard."""

import functools
from collections.abc import Mapping, Sequence

from convergence_core.bandit.priors import TRUST, NightlyPrior, nightly_prior
from convergence_core.records import Json, canonical_json
from convergence_core.result import CandidateReport, RunResult
from tasks.serving.offers import offer_of
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.rows import Champion, StoredArm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, begin_guard, end_guard

NORMAL = 1.959964
"""Standard deviations on either side that hold 95 % of a normal distribution."""
HOLDBACK = 0.1


def put_on_offer(
    store: RuntimeStore,
    result: RunResult,
    *,
    agent_type: str = "default",
    holdback: float = HOLDBACK,
    tolerance: float = 0.0,
) -> tuple[str, str | None]:
    """Offer the search's best and the candidate it replaces, and begin to watch it.

    Arms that are on offer with the same parameters are taken as they are. Called before the new
    champion is set.

    Args:
        store: the runtime state.
        result: of the run whose candidate is promoted.
        agent_type: whose requests.
        holdback: share of the requests that the former champion keeps while the guard watches.
        tolerance: how much worse than it the promoted one may be.

    Returns:
        The arm that is promoted, and the one it is watched against; ``None`` if there is none.
    """
    best, gate = result.best, result.gate
    assert best is not None  # noqa: S101 - there is no promotion without
    offered = functools.partial(_offered, store, (result.system, agent_type))
    promoted = offered(best.candidate_id, best.params, prior_of(best, result.run_id))
    former = champion_of(store, result.system)
    opponent: tuple[str, Mapping[str, Json], NightlyPrior | None] | None = None
    if former is not None:
        opponent = former.candidate_id, former.params, None
    elif result.baseline is not None:
        baseline = result.baseline
        opponent = baseline.candidate_id, baseline.params, prior_of(baseline, result.run_id)
    if opponent is None or opponent[0] == best.candidate_id:
        return promoted, None
    champion = offered(*opponent)
    group = store.group(result.system, agent_type)
    assert group is not None  # noqa: S101 - just offered
    if group.kind != "beta" or champion == promoted:
        return promoted, None
    alpha = 0.05 if gate is None else gate.alpha
    begin_guard(
        store,
        group.group_id,
        promoted=promoted,
        champion=champion,
        alpha=alpha,
        tolerance=tolerance,
        holdback=holdback,
    )
    return promoted, champion


def retire_champion(
    store: RuntimeStore, system: str, champion: Champion, *, agent_type: str = "default"
) -> str | None:
    """Take a champion's arm off offer that a person rolls back, and end the watch over it.

    Returns:
        The arm; ``None`` if it was not on offer, or is the only one, which continues serving.
    """
    group = store.group(system, agent_type)
    if group is None:
        return None
    guard = active_guard(store, group.group_id)
    if guard is not None:
        end_guard(store, group.group_id, guard, "ended")
    on_offer = [arm for arm in store.arms(group.group_id) if not arm.is_retired]
    champion_arm = _with_params(on_offer, champion.params)
    if not champion_arm or len(on_offer) == 1:
        return None
    store.retire(system, agent_type, champion_arm[0].arm_id)
    return champion_arm[0].arm_id


def offer_champion(
    store: RuntimeStore, system: str, champion: Champion, *, agent_type: str = "default"
) -> None:
    """Put a champion's arm back on offer, where the system is served."""
    if store.group(system, agent_type) is not None:
        _offered(store, (system, agent_type), champion.candidate_id, champion.params, None)


def prior_of(report: CandidateReport, run_id: str) -> NightlyPrior | None:
    """Return what the night is worth to an arm: of its most trustworthy estimate."""
    try:
        _, estimate = report.headline()
    except ValueError:
        return None
    sd = max((estimate.high - estimate.low) / (2 * NORMAL), 1e-3)
    return nightly_prior(min(max(estimate.mean, 0.0), 1.0), sd, run_id=run_id)


def _offered(
    store: RuntimeStore,
    of: tuple[str, str],
    name: str,
    params: Mapping[str, Json],
    prior: NightlyPrior | None,
) -> str:
    """Offer an arm of a system and agent type, or bring back the one that has these parameters.

    Returns:
        Its name.
    """
    group = store.group(*of)
    known = [] if group is None else store.arms(group.group_id)
    same = _with_params(known, params)
    offer = offer_of(dict(params), same[0].arm_id if same else name, None if same else prior)
    kind = "beta" if group is None else group.kind
    store.offer(*of, [offer], trust=TRUST, kind=kind)
    return offer.arm_id


def _with_params(arms: Sequence[StoredArm], params: Mapping[str, Json]) -> list[StoredArm]:
    wanted = canonical_json(dict(params))
    return [arm for arm in arms if canonical_json(dict(arm.params)) == wanted]
