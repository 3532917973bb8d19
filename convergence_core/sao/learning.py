"""What a round and the outcomes after it teach: the state after them, and who is tried next.

The order matters. A round first says how far the judge is trusted; only then is its opinion taken; its
weight moves later, by outcomes of candidates that it had an opinion of.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from convergence_core.coverage.alarms import Windows
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.racing.experts import with_expert
from convergence_core.records import Candidate, Params, canonical_json
from convergence_core.rlp.bins import bin_of
from convergence_core.rlp.gain import e_value, information_gain
from convergence_core.rlp.statistical import predictive
from convergence_core.sampler import Expert
from convergence_core.sao import ordering
from convergence_core.sao.expert import (
    NU,
    Opinion,
    first_weight,
    opinion_of,
    variance_of,
    weight_after,
)
from convergence_core.sao.hard import Check, grounded as grounded_pair
from convergence_core.sao.preferences import Preference
from convergence_core.sao.state import JudgedPair, SaoState
from convergence_core.trust.audit import Audit
from convergence_core.trust.exploitation import Standing

N_PROPOSALS: Final = 3
"""Candidates nobody asked that a judge proposes after a round, at most; draws alone choose them."""
JUDGE: Final = "judge"
"""Name of the judge among the experts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLessons:
    """What a round found, as learning needs it."""

    found: Audit
    coverage: Windows
    agreement_with_frozen: float | None
    standing: Standing | None
    """The incumbent as judge and rewards see it; ``None``: the judge did not compare it."""


def after_round(state: SaoState, lessons: RoundLessons, asked: Sequence[int]) -> SaoState:
    """Return the state after a round; its opinion is taken apart, by ``with_opinion``.

    Args:
        state: before it.
        lessons: what it found.
        asked: indices of its personas.
    """
    alarms = state.alarms.after(lessons.coverage)
    trust = state.trust.after(lessons.found)
    start = first_weight(trust.value) if trust.is_enabled else 0.0
    drift, exploitation = state.drift, state.exploitation
    if lessons.standing is not None:
        drift = drift.after(lessons.standing.judge_mean, lessons.standing.grounded_mean)
        exploitation = exploitation.after(lessons.standing)
    weight = state.weight
    if weight is None and start > 0.0:
        weight = start
    silenced = exploitation.is_frozen or drift.is_alarming
    return replace(
        state,
        n_silences=state.n_silences + (silenced and not state.is_silenced),
        rounds=state.rounds.after(lessons.agreement_with_frozen),
        asked=(*state.asked, *asked),
        alarms=alarms,
        trust=trust,
        drift=drift,
        exploitation=exploitation,
        start_weight=start,
        weight=weight,
    )


def with_opinion(
    state: SaoState,
    pairs: Sequence[JudgedPair],
    grounded: Mapping[str, float],
    unasked: Mapping[str, Params],
    check: Check | None = None,
) -> SaoState:
    """Return the state with the judge's opinion of candidates, and whom it would try.

    Args:
        state: after the round.
        pairs: all judged pairs of the run; frozen ones, and those of rounds that were aborted or raised an
            alarm of coverage, are left out.
        grounded: candidate → mean of its rewards.
        unasked: candidates without any, by id.
        check: executed on answers that the judge could not tell apart; see ``hard``.
    """
    judged = [
        (pair.comparison, (grounded_pair(pair, check) or pair).judgement)
        for pair in pairs
        if pair.comparison.kind == "candidates" and pair.teaches
    ]
    opinion = opinion_of(judged, grounded)
    if opinion is None:
        return replace(state, opinion={}, proposals=())
    wide = [pair for pair in pairs if not pair.is_collapsed]
    ranked = _ranked(opinion, wide, [name for name in opinion.means if name in unasked])
    return replace(
        state,
        opinion=opinion.means,
        proposals=tuple(canonical_json(dict(unasked[name])) for name in ranked[:N_PROPOSALS]),
    )


def _ranked(opinion: Opinion, pairs: Sequence[JudgedPair], names: Sequence[str]) -> list[str]:
    """Return candidates to be tried first: by the reward model if it may order, else by merit."""
    kept: list[Preference] = [p for pair in pairs if (p := pair.preference) is not None]
    model = ordering.fit(kept)
    by_merit = sorted(names, key=lambda name: (-opinion.means[name], name))
    if model is None or not model.may_order:
        return by_merit
    texts: dict[str, list[str]] = {name: [] for name in names}
    for pair in pairs:
        for answer in (pair.comparison.first, pair.comparison.second):
            if answer.author in texts:
                texts[answer.author].append(answer.text)
    merit = {name: float(np.mean(model.merits(own))) for name, own in texts.items() if own}
    return sorted(by_merit, key=lambda name: -merit.get(name, -np.inf))


def evidence_of(
    fitted: FittedSpaceModel,
    expert: Expert,
    candidates: Sequence[Candidate],
    rewards: Sequence[float],
) -> float | None:
    """Return the mean likelihood ratio of the judge's forecasts to the base's.

    Both know the same data: the judge's forecast is that of the posterior with its opinion added.
    ``None``: there is no outcome, or no evidence before them.

    Args:
        fitted: the base's model before the outcomes.
        expert: the judge.
        candidates: those of which it has an opinion.
        rewards: mean reward of each one's cells in the generation.
    """
    if fitted.learned is None or not candidates:
        return None
    its_own = replace(fitted, learned=replace(fitted.learned, process=with_expert(fitted, expert)))
    base, told = predictive(fitted, candidates), predictive(its_own, candidates)
    observed = [bin_of(min(1.0, max(0.0, reward))) for reward in rewards]
    return e_value([information_gain(*row) for row in zip(told, base, observed, strict=True)])


def after_outcomes(state: SaoState, evidence: float | None) -> SaoState:
    """Return the state after a generation's grounded outcomes."""
    if evidence is None or state.weight is None:
        return state
    return replace(state, weight=weight_after(state.weight, evidence, state.start_weight))


def expert_of(
    state: SaoState, params_of: Mapping[str, Params], proposals: Sequence[Params] = ()
) -> Expert | None:
    """Return the judge as an expert; ``None``: it has no say.

    Args:
        state: of the run.
        params_of: candidate → its parameters.
        proposals: of candidates that nobody has asked, best first.
    """
    if not state.is_heard:
        return None
    names = [name for name in sorted(state.opinion) if name in params_of]
    if not names:
        return None
    return Expert(
        name=JUDGE,
        weight=float(state.weight or 0.0),
        places=tuple(params_of[name] for name in names),
        means=tuple(state.opinion[name] for name in names),
        variances=tuple(variance_of(state.opinion[name], NU) for name in names),
        proposals=tuple(proposals),
        origin="sao",
    )
