"""Warm start of a run from prior runs of the same system.

Each prior run contributes the estimates of its candidates and its winners. The surrogate weighs
the estimates by their agreement with this run's rewards (``posterior.prior_runs``); generation 0
re-evaluates the winners. Candidates outside today's space and rewards of today's held-out cases
are ignored.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.evidence import Archive, Member
from convergence_core.posterior.prior_runs import EarlierRun
from convergence_core.posterior.space_model import SpaceModel
from convergence_core.records import Params

MAX_ROWS = 100
"""Maximum candidates of all prior runs together: the surrogate's cost grows with their cube."""
MIN_CANDIDATES = 5
"""Minimum candidates of a run that inform the surrogate; a smaller run contributes only
winners."""
N_WINNERS = 3
"""Number of best candidates per run to re-evaluate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Evidence and winners of prior runs, newest first."""

    runs: tuple[EarlierRun, ...] = ()
    winners: tuple[Params, ...] = ()
    """Points of generation 0: the best of each run, then the second of each, …"""
    n_runs: int = 0
    n_candidates: int = 0
    """Candidates with a reward that fit today's space."""
    n_dropped: int = 0
    """Candidates with a reward outside today's space."""


def warm_start(
    surrogate: SpaceModel,
    archives: Sequence[tuple[str, Archive]],
    *,
    held_out: frozenset[str] = frozenset(),
) -> WarmStart:
    """Return the evidence and winners of prior runs.

    Args:
        surrogate: Surrogate of today's space.
        archives: Run id and evidence of each prior run, newest first.
        held_out: Cases whose rewards this run must not learn from.
    """
    model = replace(surrogate, earlier=(), max_rows=max(1, MAX_ROWS // max(1, len(archives))))
    runs: list[EarlierRun] = []
    winners: list[list[Params]] = []
    n_candidates = n_dropped = 0
    for run_id, archive in archives:
        fitting, n_other = _fitting(model, archive, held_out)
        n_candidates, n_dropped = n_candidates + len(fitting), n_dropped + n_other
        if not len(fitting):
            continue
        fitted = model.fit(fitting)
        members = [member.candidate for member in fitting]
        mean = fitted.worth(members).mean
        best = np.argsort(-mean, kind="stable")[:N_WINNERS]
        winners.append([members[i].params for i in best])
        learned = fitted.learned
        assert learned is not None  # noqa: S101 - every member has a reward
        if len(learned.evidence.ids) < MIN_CANDIDATES:
            continue
        unit = 1.0 if learned.effects.is_measured else learned.warp.scale**2
        runs.append(
            EarlierRun(
                run_id=run_id,
                points=learned.process.points,
                mean=learned.effects.mean,
                errors=learned.process.noise * unit * learned.effects.errors,
                log_params=learned.process.log_params,
                scale=learned.warp.scale,
            )
        )
    ranked = [ranks[i] for i in range(N_WINNERS) for ranks in winners if i < len(ranks)]
    return WarmStart(
        runs=tuple(runs),
        winners=tuple(ranked),
        n_runs=len(archives),
        n_candidates=n_candidates,
        n_dropped=n_dropped,
    )


def _fitting(model: SpaceModel, archive: Archive, held_out: frozenset[str]) -> tuple[Archive, int]:
    """Return the members that fit the space, without held-out cases, and the number of others."""
    members: dict[str, Member] = {}
    n_dropped = 0
    for member in archive:
        rewards = {cell: r for cell, r in member.rewards.items() if cell[0] not in held_out}
        if rewards and model.space.validate(member.candidate.params):
            n_dropped += 1
        elif rewards:
            candidate = model.space.candidate(member.candidate.params, member.candidate.origin)
            members[candidate.candidate_id] = replace(member, candidate=candidate, rewards=rewards)
    return Archive(members), n_dropped
