"""Promotion at run time: activation of a candidate with its prior and guard."""

import functools
import itertools
from collections.abc import Mapping, Sequence

from convergence_core.bandit.priors import TRUST, NightlyPrior, nightly_prior
from convergence_core.bandit.report import Routing
from convergence_core.errors import ConfigurationError
from convergence_core.gate.guardrails import Guardrail
from convergence_core.records import Json, canonical_json
from convergence_core.result import CandidateReport, RunResult
from tasks.serving.contextual_fold import night_state
from tasks.serving.guard import fence
from tasks.serving.offers import offer_of
from tasks.serving.settings import read_settings
from tasks.store.runtime.promotions import champion_of
from tasks.store.runtime.rows import ArmKind, Champion, StoredArm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import active_guard, begin_contextual, begin_guard, move_guard

NORMAL = 1.959964
"""Standard deviations around the mean that cover 95 % of a normal distribution."""
HOLDBACK = 0.1
RAMP = (0.05, 0.25, 0.5)
"""Shares of the requests that a promoted arm gets before the last step, at which it gets all but
the hold-back.
"""


def put_on_offer(
    store: RuntimeStore,
    result: RunResult,
    *,
    agent_type: str = "default",
    holdback: float = HOLDBACK,
    tolerance: float = 0.0,
    ramp: Sequence[float] = RAMP,
) -> tuple[str, str | None]:
    """Activate the search's best and the candidate it replaces, and guard the promotion.

    If an earlier promotion is on its ramp, its control stays the control. Promoting that control
    rolls the ramp back. Linear arms have no guard. Active arms with the same parameters are
    reused. Call this before setting the new champion.

    Args:
        store: the runtime state.
        result: result of the run with the promoted candidate.
        agent_type: agent type of the requests.
        holdback: share of the requests that the former champion keeps at the last step.
        tolerance: tolerated loss in mean reward against the former champion.
        ramp: shares of the promoted arm before the last step; empty for the last step only.

    Returns:
        The promoted arm and its control; the control is ``None`` if there is none.
    """
    best, gate = result.best, result.gate
    assert best is not None  # noqa: S101 - a promotion has a candidate
    offered = functools.partial(_offered, store, (result.system, agent_type))
    promoted = offered(best.candidate_id, best.params, prior_of(best, result.run_id))
    group = store.group(result.system, agent_type)
    assert group is not None  # noqa: S101 - just offered
    if group.kind == "linear" and result.routing is not None and result.routing.night is not None:
        offer_routed(store, result, result.routing, agent_type=agent_type)
    watch = active_guard(store, group.group_id)
    if watch is not None and watch.champion == promoted:
        move_guard(store, group.group_id, watch, "rollback")
        store.retire(result.system, agent_type, watch.promoted)
        return promoted, None
    former = champion_of(store, result.system)
    opponent: tuple[str, Mapping[str, Json], NightlyPrior | None] | None = None
    if former is not None:
        opponent = former.candidate_id, former.params, None
    elif result.baseline is not None:
        baseline = result.baseline
        opponent = baseline.candidate_id, baseline.params, prior_of(baseline, result.run_id)
    if opponent is None or opponent[0] == best.candidate_id:
        return promoted, None
    on_offer = {arm.arm_id for arm in store.arms(group.group_id) if not arm.is_retired}
    if watch is not None and watch.champion in on_offer:  # an arm on its ramp is unconfirmed
        champion = watch.champion
    else:
        champion = offered(*opponent)
    if group.kind != "beta" or champion == promoted:
        return promoted, None
    alpha = 0.05 if gate is None else gate.alpha
    margins = read_settings(result.system, store.settings_text(result.system)).guardrails
    begin_guard(
        store,
        group.group_id,
        promoted=promoted,
        champion=champion,
        alpha=alpha,
        tolerance=tolerance,
        holdback=holdback,
        steps=ramp,
        guardrails=[Guardrail(name=name, margin=x) for name, x in sorted(margins.items())],
    )
    guard = active_guard(store, group.group_id)
    if guard is not None:
        fence(store, group.group_id, group.version, guard)
    return promoted, champion


def offer_routed(
    store: RuntimeStore, result: RunResult, routing: Routing, *, agent_type: str = "default"
) -> list[str]:
    """Activate routed candidates as linear arms that start from the run's cases.

    Rewards that such arms already have are learned again after the cases.

    Args:
        store: the runtime state.
        result: result of the run.
        routing: the run's routing, which must have a gain.
        agent_type: agent type of the requests.

    Returns:
        Names of the arms.

    Raises:
        ArmChangedError: the active arms are not linear.
        ConfigurationError: the system's settings do not allow linear arms.
    """
    assert routing.night is not None  # noqa: S101 - routing with a gain has it
    settings = read_settings(result.system, store.settings_text(result.system))
    if store.group(result.system, agent_type) is None and settings.kind != "linear":
        if settings.mode != "regret" or settings.rewards_per_false_alarm is not None:
            raise ConfigurationError.of(
                "mode",
                "must be regret, without rewards_per_false_alarm, where requests are routed",
                "Change it with `configure_runtime`.",
                value=settings.mode,
            )
        linear = settings.model_copy(update={"kind": "linear"})
        store.save_settings(result.system, linear.model_dump(mode="json"))
    rows = {row.candidate_id: row for row in result.leaderboard}
    of = (result.system, agent_type)
    names = []
    for candidate_id in routing.shares:
        row = rows[candidate_id]
        prior = _prior(row.mean, row.low, row.high, result.run_id)
        names.append(_offered(store, of, candidate_id, row.params, prior, kind="linear"))
    group = store.group(*of)
    assert group is not None  # noqa: S101 - just offered
    state = night_state(store.arms(group.group_id), routing.night, names)
    begin_contextual(store, group.group_id, state)
    return names


def read_ramp(text: str, holdback: float) -> tuple[float, ...]:
    """Parse a ramp in percent, such as ``5,25,50,100``; drop steps within the hold-back.

    Raises:
        ConfigurationError: the shares do not rise to 100.
    """
    try:
        steps = [float(part) / 100.0 for part in text.split(",")]
    except ValueError:
        steps = []
    if steps[-1:] != [1.0] or not all(a < b for a, b in itertools.pairwise([0.0, *steps])):
        fix = "Write e.g. 5,25,50,100."
        raise ConfigurationError.of("--ramp", "must rise to 100", fix, value=text)
    return tuple(step for step in steps if step < 1.0 - holdback)


def retire_champion(store: RuntimeStore, system: str, champion: Champion) -> str | None:
    """Retire the arm of a champion that the user rolls back, and end its guard.

    Returns:
        The arm; ``None`` if it was inactive, or is the only arm, which continues serving.
    """
    group = store.group(system, "default")
    if group is None:
        return None
    guard = active_guard(store, group.group_id)
    if guard is not None:
        move_guard(store, group.group_id, guard, "ended")
    on_offer = [arm for arm in store.arms(group.group_id) if not arm.is_retired]
    champion_arm = _with_params(on_offer, champion.params)
    if not champion_arm or len(on_offer) == 1:
        return None
    store.retire(system, "default", champion_arm[0].arm_id)
    return champion_arm[0].arm_id


def offer_champion(store: RuntimeStore, system: str, champion: Champion) -> None:
    """Activate a champion's arm again if the system is served."""
    if store.group(system, "default") is not None:
        _offered(store, (system, "default"), champion.candidate_id, champion.params, None)


def prior_of(report: CandidateReport, run_id: str) -> NightlyPrior | None:
    """Return an arm's prior from the report's most trustworthy estimate; ``None`` without one."""
    try:
        _, estimate = report.headline()
    except ValueError:
        return None
    return _prior(estimate.mean, estimate.low, estimate.high, run_id)


def _prior(mean: float, low: float, high: float, run_id: str) -> NightlyPrior:
    sd = max((high - low) / (2 * NORMAL), 1e-3)
    return nightly_prior(min(max(mean, 0.0), 1.0), sd, run_id=run_id)


def _offered(
    store: RuntimeStore,
    of: tuple[str, str],
    name: str,
    params: Mapping[str, Json],
    prior: NightlyPrior | None,
    *,
    kind: ArmKind | None = None,
) -> str:
    """Activate an arm of a system and agent type, reusing one with these parameters.

    Args:
        store: the runtime state.
        of: system and agent type.
        name: name of a new arm.
        params: parameters of the arm.
        prior: prior of a new arm.
        kind: kind of the arms; ``None`` means that of the active arms, or of the settings.

    Returns:
        Name of the arm.
    """
    group = store.group(*of)
    known = [] if group is None else store.arms(group.group_id)
    same = _with_params(known, params)
    offer = offer_of(dict(params), same[0].arm_id if same else name, None if same else prior)
    if kind is None:
        kind = (
            read_settings(of[0], store.settings_text(of[0])).kind if group is None else group.kind
        )
    store.offer(*of, [offer], trust=TRUST, kind=kind)
    return offer.arm_id


def _with_params(arms: Sequence[StoredArm], params: Mapping[str, Json]) -> list[StoredArm]:
    wanted = canonical_json(dict(params))
    return [arm for arm in arms if canonical_json(dict(arm.params)) == wanted]
