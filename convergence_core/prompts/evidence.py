"""Worth of texts by case: posteriors, gains and fronts.

g = mean_c (r_child,c - r_parent,c)            over the cases c that both were asked     (1)
w(a, b) = sum_c max(0, r_b,c - r_a,c)          what b would add to a, of shared cases    (2)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.search.archive import Archive

PRIOR_SD: Final = 0.15
"""Spread of the mean rewards of texts about that of their parent, before anything is seen."""
CELL_SD: Final = 0.35
"""Spread of one cell's reward about its text's mean, before anything is seen."""
LEAST_SHARED: Final = 3
"""Cases that two texts must share to be compared case by case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvidence:
    """Rewards of one text by case."""

    by_case: Mapping[str, float]
    """Mean over the candidates and repeats that hold the text."""
    n: int
    """Cells."""

    @property
    def mean(self) -> float:
        """Mean over the cases."""
        return sum(self.by_case.values()) / len(self.by_case)


def evidence_of(archive: Archive, parameter: str) -> dict[str, TextEvidence]:
    """Return text → its evidence; texts without a reward are left out."""
    rewards: dict[str, dict[str, list[float]]] = {}
    for member in archive:
        text = member.candidate.params.get(parameter)
        if not isinstance(text, str):
            continue
        for (case, _), reward in member.rewards.items():
            rewards.setdefault(text, {}).setdefault(case, []).append(reward)
    return {
        text: TextEvidence(
            by_case={case: sum(own) / len(own) for case, own in sorted(cases.items())},
            n=sum(map(len, cases.values())),
        )
        for text, cases in rewards.items()
    }


def case_means(evidence: Mapping[str, TextEvidence]) -> dict[str, float]:
    """Return case → mean over the texts that were asked it: how easy it is."""
    found: dict[str, list[float]] = {}
    for one in evidence.values():
        for case, reward in one.by_case.items():
            found.setdefault(case, []).append(reward)
    return {case: sum(own) / len(own) for case, own in found.items()}


def text_posterior(
    evidence: Mapping[str, TextEvidence], parents: Mapping[str, str], price: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return text → (mean, sd) of its worth: its parent's is the prior mean of a text.

    Cases are adjusted for how easy they are. Texts come in the order of ``evidence``; a parent that
    comes later, or has no evidence, leaves the grand mean.

    Args:
        evidence: of the texts.
        parents: text → the first that it was written from.
        price: text → what its length costs.
    """
    if not evidence:
        return {}
    ease = case_means(evidence)
    grand = sum(ease.values()) / len(ease)
    found: dict[str, tuple[float, float]] = {}
    for text, one in evidence.items():
        adjusted = grand + sum(r - ease[c] for c, r in one.by_case.items()) / len(one.by_case)
        prior = found.get(parents.get(text, ""), (grand, 0.0))[0]
        noise = CELL_SD**2 / max(1, one.n)
        weight = PRIOR_SD**2 / (PRIOR_SD**2 + noise)
        mean = prior + weight * (adjusted - prior)
        found[text] = (mean, math.sqrt(weight * noise))
    return {text: (mean - price.get(text, 0.0), sd) for text, (mean, sd) in found.items()}


def gain(child: TextEvidence, parent: TextEvidence) -> tuple[float, float] | None:
    """Return g and its variance; ``None``: too few cases are shared."""
    shared = [case for case in child.by_case if case in parent.by_case]
    if len(shared) < LEAST_SHARED:
        return None
    steps = np.array([child.by_case[c] - parent.by_case[c] for c in shared])
    variance = (float(steps.var()) + CELL_SD**2) / (len(steps) + 1)
    return float(steps.mean()), variance  # (eq. 1)


def merge_worth(first: TextEvidence, second: TextEvidence) -> float:
    """Return w: what the second is ahead by on the cases where it is ahead."""
    shared = [case for case in first.by_case if case in second.by_case]
    if len(shared) < LEAST_SHARED:
        return 0.0
    return sum(max(0.0, second.by_case[c] - first.by_case[c]) for c in shared)  # (eq. 2)


def front(evidence: Mapping[str, TextEvidence]) -> dict[str, tuple[str, ...]]:
    """Return case → the texts that are best on it, of those asked it; the per-case Pareto front."""
    best: dict[str, float] = {}
    for one in evidence.values():
        for case, reward in one.by_case.items():
            best[case] = max(reward, best.get(case, -math.inf))
    return {
        case: tuple(text for text, one in evidence.items() if one.by_case.get(case) == top)
        for case, top in sorted(best.items())
    }


def merge_partners(
    evidence: Mapping[str, TextEvidence], parent: str, among: Sequence[str]
) -> list[str]:
    """Return the texts that win on cases where the parent does not, the most useful first."""
    if parent not in evidence:
        return []
    on_front = {text for texts in front(evidence).values() for text in texts}
    worth = {
        text: merge_worth(evidence[parent], evidence[text])
        for text in among
        if text != parent and text in evidence and text in on_front
    }
    return sorted((t for t, w in worth.items() if w > 0.0), key=lambda text: -worth[text])
