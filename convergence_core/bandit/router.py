"""Gain of routing by case, and the router that a night learns.

Each case of a run has rewards of several candidates, so these rewards estimate any choice per
case. Cases are split into ``N_FOLDS`` folds, with similar ones together. The regressions of
``contextual`` learn all folds but one, and route each case of that fold to the candidate with the
highest expected reward:

    gain = mean of r(case, routed by the other folds) - r(case, single)                            (1)

So no case evaluates a route that it influenced (V. Chernozhukov et al., "Double/debiased machine
learning", 2018, sec. 3; S. Athey, S. Wager, "Policy learning with observational data", 2021). The
single candidate is the best on all cases, which favours it. Chosen by the other folds, it would
tend to be the worse of two equal candidates on this fold. The interval is that of the promotion
gate for one look.

Candidates that the search dropped early are excluded. Of the others, the ``MOST_CANDIDATES`` with
the best means are compared, and at most ``MOST_ARMS`` become arms. Arms are added while the mean
over cases of the highest expected reward grows by ``LEAST_GROWTH``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.bandit.contextual import ContextualArms
from convergence_core.bandit.features import Feature
from convergence_core.bandit.propensities import Floats
from convergence_core.bandit.report import Routing
from convergence_core.gate.intervals import grouped
from convergence_core.gate.paired import PairedGate

N_FOLDS = 10
MOST_CANDIDATES = 24
MOST_ARMS = 4
LEAST_GROWTH = 0.002
"""Minimum growth of the expected reward for another arm."""
LEAST_UNITS = 20
"""Minimum number of independent units for an estimate."""
COVERAGE = 0.8
"""Minimum share of cases with an answer per candidate."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CaseTable:
    """Rewards of candidates on cases."""

    contexts: Sequence[Mapping[str, Feature]]
    """Features of each case, (n,)."""
    candidates: Sequence[str]
    """Candidate ids, (n_candidates,)."""
    rewards: Floats
    """Rewards in [0, 1], (n, n_candidates); NaN without an answer."""
    groups: Sequence[str | None]
    """Groups of similar cases, (n,); ``None`` for an independent case."""
    weights: Floats
    """Weights of the cases, (n,)."""

    def comparable(self) -> "CaseTable":
        """Return the table of candidates that answered most cases, the best first."""
        rewards = np.where(np.isfinite(self.rewards), self.rewards, np.nan)
        is_known = np.isfinite(rewards)
        kept = np.flatnonzero(is_known.mean(axis=0) >= COVERAGE)
        weights = self.weights[:, None] * is_known[:, kept]
        means = np.average(np.nan_to_num(rewards[:, kept]), axis=0, weights=weights)
        kept = kept[np.argsort(means, kind="stable")[::-1][:MOST_CANDIDATES]]
        return CaseTable(
            contexts=self.contexts,
            candidates=[self.candidates[int(k)] for k in kept],
            rewards=rewards[:, kept],
            groups=self.groups,
            weights=self.weights,
        )


def routing_of(table: CaseTable, *, rng: np.random.Generator, level: float = 0.95) -> Routing:
    """Return the estimated gain of routing on a run's cases.

    Args:
        table: Search cases; at least one case and one candidate.
        rng: Generator for the split into folds.
        level: Level of the interval.
    """
    table = table.comparable()
    n, n_groups = len(table.contexts), len(_units(table.groups))
    counted = Routing(
        n_cases=n, n_groups=n_groups, n_candidates=len(table.candidates), level=level
    )
    missing = ""
    if len(table.candidates) < 2:
        missing = "fewer than two settings answered most cases"
    elif n_groups < LEAST_UNITS:
        missing = f"it takes {LEAST_UNITS} independent cases, and the run has {n_groups}"
    elif len({tuple(sorted(context.items(), key=str)) for context in table.contexts}) < 2:
        missing = "no text, field or tag tells the cases apart"
    if missing:
        return replace(counted, missing=missing)
    chosen, arms = _router(table)
    single, routed = table.rewards[:, 0], _held_out(table, rng)
    both = np.isfinite(single) & np.isfinite(routed)
    groups = [group for group, is_known in zip(table.groups, both, strict=True) if is_known]
    gains, weights = grouped(
        (routed - single)[both].tolist(), table.weights[both].tolist(), groups
    )
    verdict = PairedGate().judge(gains, weights, level=(1.0 - level) / 2.0)
    counts = np.bincount(chosen, weights=table.weights, minlength=len(arms))
    share_of = {k: float(count / counts.sum()) for k, count in zip(arms, counts, strict=True)}
    # The arms of ``night`` have the order of ``shares``, whose keys are sorted in storage.
    columns = sorted((k for k in arms if share_of[k] > 0.0), key=lambda k: table.candidates[k])
    night = None
    if verdict.low > 0.0 and len(columns) > 1:
        night = ContextualArms.of_table(table.contexts, table.rewards[:, columns]).to_json()
    return replace(
        counted,
        single=float(np.average(single[both], weights=table.weights[both])),
        gain=verdict.mean,
        low=verdict.low,
        high=verdict.high,
        shares={table.candidates[k]: share_of[k] for k in columns},
        night=night,
    )


def _units(groups: Sequence[str | None]) -> dict[tuple[int, str], list[int]]:
    """Return the cases of each independent unit."""
    units: dict[tuple[int, str], list[int]] = {}
    for i, group in enumerate(groups):
        units.setdefault((i, "") if group is None else (-1, group), []).append(i)
    return units


def _held_out(table: CaseTable, rng: np.random.Generator) -> Floats:
    """Return the reward of each case under a router fitted without it, (n,)."""
    units = list(_units(table.groups).values())
    fold_of = rng.permutation(len(units)) % N_FOLDS
    routed = np.full(len(table.contexts), np.nan)
    for fold in range(N_FOLDS):
        out = [i for unit, f in zip(units, fold_of, strict=True) if f == fold for i in unit]
        rest = sorted(set(range(len(table.contexts))) - set(out))
        contexts = [table.contexts[i] for i in rest]
        arms = ContextualArms.of_table(contexts, table.rewards[rest])
        picked = portfolio(_expected(arms, contexts), table.weights[rest])
        there = _expected(arms, [table.contexts[i] for i in out])[:, picked]
        routed[out] = table.rewards[out, np.array(picked)[there.argmax(axis=1)]]
    return routed


def _router(table: CaseTable) -> tuple[np.ndarray, list[int]]:
    """Return each case's index among the arms under a router of all cases, and the arms."""
    arms = ContextualArms.of_table(table.contexts, table.rewards)
    expected = _expected(arms, table.contexts)
    picked = portfolio(expected, table.weights)
    return expected[:, picked].argmax(axis=1), picked


def _expected(arms: ContextualArms, contexts: Sequence[Mapping[str, Feature]]) -> Floats:
    return np.array([arms.posterior(context).mean_sd[0] for context in contexts])


def portfolio(expected: Floats, weights: Floats) -> list[int]:
    """Return the columns to route between, the best on average first.

    Args:
        expected: Expected rewards by case and candidate, (n, n_candidates).
        weights: Weights of the cases, (n,).
    """
    picked = [int(np.average(expected, axis=0, weights=weights).argmax())]
    while len(picked) < MOST_ARMS:
        top = expected[:, picked].max(axis=1)
        growth = np.average(np.maximum(expected - top[:, None], 0.0), axis=0, weights=weights)
        if growth.max() < LEAST_GROWTH:
            break
        picked.append(int(growth.argmax()))
    return picked
