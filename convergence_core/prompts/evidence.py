"""Value of prompts by case: posteriors, gains and fronts.

g = mean_c (r_child,c - r_parent,c)            over the cases c evaluated with both      (1) w(a,
b) = sum_c max(0, r_b,c - r_a,c)          gain of adding b to a, over shared cases  (2) m = K (K +
S)^-1 r                             means of all prompts given rewards r      (3)

Notation: K prior covariance of prompts, by ancestry and shared sentences; S noise of mean rewards.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.evidence import Archive
from convergence_core.prompts.shots import split

MEAN_STEP: Final = 0.03
"""Prior mean gain of an edit: a writer that sees failures seldom does harm."""
MEAN_STEP_SD: Final = 0.03
"""Spread of that mean over tasks and writers, which a run learns."""
STEP_SD: Final = 0.05
"""Prior spread of the mean rewards of prompts about that of their parent."""
ROOT_SD: Final = 0.03
"""Spread of a prompt's own effect, e.g. of the order of its sentences."""
SENTENCE_SD: Final = 0.06
"""Spread of one sentence's effect."""
CELL_SD: Final = 0.3
"""Prior spread of one cell's reward about its prompt's mean."""
N_ASSUMED: Final = 6
"""Number of cells that ``CELL_SD`` counts as."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+|\n+")
LEAST_SHARED: Final = 3
"""Minimum shared cases for comparing two prompts case by case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEvidence:
    """Rewards of one prompt by case."""

    by_case: Mapping[str, float]
    """Case → mean over the candidates with this prompt and their repeats."""
    n: int
    """Number of cells."""

    @property
    def mean(self) -> float:
        """Mean over the cases."""
        return sum(self.by_case.values()) / len(self.by_case)


def evidence_of(archive: Archive, parameter: str) -> dict[str, TextEvidence]:
    """Return prompt → its evidence; prompts without a reward are left out."""
    rewards: dict[str, dict[str, list[float]]] = {}
    for member in archive:
        text = member.candidate.params.get(parameter)
        if not isinstance(text, str):
            continue
        for (case, _), reward in member.rewards.items():
            rewards.setdefault(text, {}).setdefault(case, []).append(reward)
    return {
        text: TextEvidence(
            by_case={case: sum(rewards) / len(rewards) for case, rewards in sorted(cases.items())},
            n=sum(map(len, cases.values())),
        )
        for text, cases in rewards.items()
    }


def case_means(evidence: Mapping[str, TextEvidence]) -> dict[str, float]:
    """Return case → mean reward over the prompts evaluated on it, a measure of easiness."""
    rewards_by_case: dict[str, list[float]] = {}
    for text_evidence in evidence.values():
        for case, reward in text_evidence.by_case.items():
            rewards_by_case.setdefault(case, []).append(reward)
    return {case: sum(rewards) / len(rewards) for case, rewards in rewards_by_case.items()}


def text_posterior(
    evidence: Mapping[str, TextEvidence], parents: Mapping[str, str], price: Mapping[str, float]
) -> dict[str, tuple[float, float]]:
    """Return prompt → (mean, sd) of its value, given the rewards of all prompts.

    A prompt resembles its parent and every prompt with common sentences. So all prompts with a
    sentence inform its effect, and children inform their parent. Cases are adjusted for their
    easiness.

    Args:
        evidence: Evidence of the prompts, parents before their children.
        parents: Prompt → its first parent.
        price: Prompt → cost of its length.
    """
    if not evidence:
        return {}
    ease = case_means(evidence)
    grand = sum(ease.values()) / len(ease)
    texts = [*evidence]
    seen = np.array(
        [
            sum(r - ease[c] for c, r in text_evidence.by_case.items()) / len(text_evidence.by_case)
            for text_evidence in evidence.values()
        ]
    )  # (n_texts,)
    n_cells = np.array([max(1, text_evidence.n) for text_evidence in evidence.values()])
    depth = depths(texts, parents)
    prior = text_covariance(texts, parents) + MEAN_STEP_SD**2 * np.outer(depth, depth)
    expected = MEAN_STEP * (depth - np.average(depth, weights=n_cells))
    noise = np.diag(cell_sd(evidence) ** 2 / n_cells)
    weights = np.linalg.solve(prior + noise, prior)  # (eq. 3)
    means = grand + expected + (seen - expected) @ weights
    variances = np.diag(prior) - np.einsum("ij,ij->j", prior, weights)
    return {
        text: (float(mean) - price.get(text, 0.0), math.sqrt(max(float(variance), 1e-12)))
        for text, mean, variance in zip(texts, means, variances, strict=True)
    }


def depths(texts: Sequence[str], parents: Mapping[str, str]) -> np.ndarray:
    """Return the number of edits between each prompt and a given one, (n_texts,)."""
    depth_of: dict[str, int] = {}
    for text in texts:
        depth_of[text] = depth_of[parents[text]] + 1 if parents.get(text) in depth_of else 0
    return np.array([*depth_of.values()], np.float64)


def text_covariance(texts: Sequence[str], parents: Mapping[str, str]) -> np.ndarray:
    """Return the prior covariance of the prompts' values, (n_texts, n_texts)."""
    position = {text: i for i, text in enumerate(texts)}
    ancestry = np.eye(len(texts))
    for text, i in position.items():
        parent = position.get(parents.get(text, ""))
        if parent is not None and parent < i:
            ancestry[i] += ancestry[parent]
    vocabulary: dict[str, int] = {}
    rows = [
        {vocabulary.setdefault(sentence, len(vocabulary)) for sentence in sentences_of(text)}
        for text in texts
    ]
    holds = np.zeros((len(texts), len(vocabulary)))  # (n_texts, n_sentences)
    for i, row in enumerate(rows):
        holds[i, [*row]] = 1.0
    holds -= holds.mean(axis=0)  # a sentence that all prompts hold does not distinguish them
    covariance = ROOT_SD**2 * np.eye(len(texts)) + STEP_SD**2 * ancestry @ ancestry.T
    return np.asarray(covariance + SENTENCE_SD**2 * holds @ holds.T, np.float64)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a prompt, in lower case and with normalized blanks."""
    return [
        sentence for part in _SENTENCE.split(text.lower()) if (sentence := " ".join(part.split()))
    ]


def cell_sd(evidence: Mapping[str, TextEvidence]) -> float:
    """Return the spread of one cell's reward about the means of its prompt and case."""
    ease = case_means(evidence)
    squares, n = N_ASSUMED * CELL_SD**2, float(N_ASSUMED)
    for text_evidence in evidence.values():
        if len(text_evidence.by_case) < 2:
            continue
        rests = np.array([r - ease[c] for c, r in text_evidence.by_case.items()])
        squares += float(((rests - rests.mean()) ** 2).sum())
        n += len(rests) - 1
    return math.sqrt(squares / n)


def gain(child: TextEvidence, parent: TextEvidence) -> tuple[float, float] | None:
    """Return g and its variance; ``None`` if too few cases are shared."""
    shared = [case for case in child.by_case if case in parent.by_case]
    if len(shared) < LEAST_SHARED:
        return None
    steps = np.array([child.by_case[c] - parent.by_case[c] for c in shared])
    variance = (float(steps.var()) + CELL_SD**2) / (len(steps) + 1)
    return float(steps.mean()), variance  # (eq. 1)


def merge_worth(first: TextEvidence, second: TextEvidence) -> float:
    """Return w: the sum of the second's leads on the cases where it is better."""
    shared = [case for case in first.by_case if case in second.by_case]
    if len(shared) < LEAST_SHARED:
        return 0.0
    return sum(max(0.0, second.by_case[c] - first.by_case[c]) for c in shared)  # (eq. 2)


def front(evidence: Mapping[str, TextEvidence]) -> dict[str, tuple[str, ...]]:
    """Return case → the best prompts evaluated on it; the per-case Pareto front."""
    best: dict[str, float] = {}
    for text_evidence in evidence.values():
        for case, reward in text_evidence.by_case.items():
            best[case] = max(reward, best.get(case, -math.inf))
    return {
        case: tuple(
            text
            for text, text_evidence in evidence.items()
            if text_evidence.by_case.get(case) == top
        )
        for case, top in sorted(best.items())
    }


def merge_partners(
    evidence: Mapping[str, TextEvidence], parent: str, among: Sequence[str]
) -> list[str]:
    """Return the prompts that win on cases where the parent does not, most useful first.

    Prompts that differ from the parent only in their demonstrations are excluded: a merge request
    would show the same prompt twice.
    """
    if parent not in evidence:
        return []
    on_front = {text for texts in front(evidence).values() for text in texts}
    worth = {
        text: merge_worth(evidence[parent], evidence[text])
        for text in among
        if text in evidence and text in on_front and split(text)[0] != split(parent)[0]
    }
    return sorted((t for t, w in worth.items() if w > 0.0), key=lambda text: -worth[text])
