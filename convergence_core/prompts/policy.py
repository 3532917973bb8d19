"""Thompson sampling of parameters and operators, with logged propensities.

    g_k ~ N(mu_oc, s2_k),   mu_oc ~ N(m_o, tau^2),   m_o ~ N(m_0, tau^2)             (1)
    p_oc = (1 - eps) P(mu_oc is the largest) + eps / n                               (2)

Notation: o operator, c failure category of the parent, g_k gain of edit k over its parent and s2_k
its variance, n operators that apply. P is estimated by draws and smoothed by eps. The operator is
then drawn from p itself, so that the logged propensity is exact. The parameter is chosen in the
same way, by the mean gain of its edits.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.config.prompts import OperatorName
from convergence_core.prompts.twins import LIKELY
from convergence_core.records import Category, Params

PRIOR_MEANS: Final[Mapping[OperatorName, float]] = {
    "reflect": 0.1,
    "merge": 0.1,
    "context-reduction": -0.02,
}
"""Prior gain of an operator, 0 for the others. A writer that sees failures, or two prompts that
win on different cases, knows more than a fixed edit. A reduction of a given prompt seldom raises
the reward.
"""
REDUCTION_STEP: Final = 0.02
"""Increase of a reduction's prior per edit since a given prompt, up to the largest of
``PRIOR_MEANS``: failed edits have left sentences that only add cost.
"""
LIKELY_MEAN: Final = 0.02
"""Prior bonus of an operator that suits the failure category."""
TAU: Final = 0.03
"""Spread of the mean gains of operators, and of categories about them."""
EPSILON: Final = 0.1
"""Share of uniform choices."""
LEAST_EXAMPLES: Final = 1 / 3
"""Minimum share of edits that draw demonstrations, if possible: they cost no call, and small
models often follow only them.
"""
N_DRAWS: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """An edit with an observed gain."""

    operator: OperatorName
    category: Category
    gain: float
    variance: float


def prior_mean(operator: OperatorName, n_edits: int = 0) -> float:
    """Return m_0 of an operator, for a parent ``n_edits`` away from a given prompt."""
    prior = PRIOR_MEANS.get(operator, 0.0)
    if operator == "context-reduction":
        prior = min(prior + REDUCTION_STEP * n_edits, max(PRIOR_MEANS.values()))
    return prior


def operator_posterior(
    operators: Sequence[OperatorName],
    category: Category,
    tried: Sequence[Tried],
    n_edits: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the means and standard deviations of mu_oc, (n_operators,) each.

    Edits of other categories have the variance between categories added.

    Args:
        operators: Applicable operators.
        category: Category of the parent's failures.
        tried: Edits with an observed gain.
        n_edits: Number of edits between a given prompt and the parent.
    """
    means, sds = [], []
    for operator in operators:
        prior = prior_mean(operator, n_edits)
        prior += LIKELY_MEAN if operator in LIKELY.get(category, ()) else 0.0
        precision, weighted = 1.0 / (2.0 * TAU**2), prior / (2.0 * TAU**2)
        for edit in tried:
            if edit.operator != operator:
                continue
            apart = 0.0 if edit.category == category else 2.0 * TAU**2
            weight = 1.0 / (edit.variance + apart)
            precision += weight
            weighted += weight * max(edit.gain, -TAU)  # a bad edit costs only its few cells
        means.append(weighted / precision)  # (eq. 1)
        sds.append(math.sqrt(1.0 / precision))
    return np.array(means), np.array(sds)


def propensities(
    operators: Sequence[OperatorName],
    category: Category,
    tried: Sequence[Tried],
    rng: np.random.Generator,
    n_edits: int = 0,
) -> np.ndarray:
    """Return p, (n_operators,), which sums to 1; see ``operator_posterior`` for the arguments."""
    means, sds = operator_posterior(operators, category, tried, n_edits)
    p = _smoothed(_wins(means, sds, rng))
    is_drawn = np.array([name == "examples" for name in operators])
    lacking = LEAST_EXAMPLES - p[is_drawn].sum()
    if lacking > 0.0 and 0 < is_drawn.sum() < len(operators):
        p = np.where(is_drawn, p + lacking, p * (1.0 - LEAST_EXAMPLES) / p[~is_drawn].sum())
    return np.asarray(p / p.sum(), np.float64)


def chances_by_text(
    draws: np.ndarray, candidates: Sequence[Params], parameter: str
) -> dict[str, float]:
    """Return prompt → probability that the best candidate holds it.

    Args:
        draws: Joint draws of the candidates' values, (n_draws, n_candidates).
        candidates: Parameters of the candidates.
        parameter: Text parameter; candidates without it are left out.
    """
    texts = [params.get(parameter) for params in candidates]
    rows = [i for i, text in enumerate(texts) if isinstance(text, str)]
    chances: dict[str, float] = {}
    if rows:
        for row in draws[:, rows].argmax(axis=1):
            text = str(texts[rows[int(row)]])
            chances[text] = chances.get(text, 0.0) + 1.0 / len(draws)
    return chances


def chances_of_best(
    values: Mapping[str, tuple[float, float]], rng: np.random.Generator
) -> dict[str, float]:
    """Return prompt → probability that it is the best, from means and standard deviations."""
    names = [*values]
    means = np.array([values[name][0] for name in names])
    sds = np.array([values[name][1] for name in names])
    return dict(zip(names, _wins(means, sds, rng).tolist(), strict=True))


def agreed_chances(learned: Mapping[str, float], search: Mapping[str, float]) -> dict[str, float]:
    """Return prompt → probability of being a parent: the normalized product of both posteriors.

    Ancestry and shared sentences inform a prompt's own value, the search its value together with
    other parameters. Both use the same rewards, so the product favours the best more than either
    alone.

    Args:
        learned: Prompt → probability that it is the best, by ancestry and sentences.
        search: Prompt → probability that the best candidate holds it; empty if unknown.
    """
    products = (
        {text: p * search.get(text, 0.0) for text, p in learned.items()} if search else {**learned}
    )
    total = sum(products.values())
    return {text: p / total for text, p in products.items()} if total else {**learned}


def parameter_propensities(
    tried: Sequence[Sequence[Tried]], rng: np.random.Generator
) -> np.ndarray:
    """Return the probability of each parameter, (n_parameters,), which sum to 1.

    Args:
        tried: Edits of each parameter with an observed gain.
        rng: Random generator.
    """
    n = len(tried)
    if n == 1:
        return np.ones(1)
    means, sds = [], []
    for edits in tried:
        precision, weighted = 1.0 / TAU**2, 0.0
        for edit in edits:
            weight = 1.0 / (edit.variance + TAU**2)
            precision += weight
            weighted += weight * max(edit.gain, 0.0)
        means.append(weighted / precision)
        sds.append(math.sqrt(1.0 / precision))
    p = _smoothed(_wins(np.array(means), np.array(sds), rng))
    return np.asarray(p / p.sum(), np.float64)


def _wins(means: np.ndarray, sds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the share of draws in which each is the largest, (n,)."""
    draws = means + sds * rng.standard_normal((N_DRAWS, len(means)))
    return np.asarray(np.bincount(draws.argmax(axis=1), minlength=len(means)) / N_DRAWS)


def _smoothed(wins: np.ndarray) -> np.ndarray:
    return np.asarray((1.0 - EPSILON) * wins + EPSILON / len(wins))  # (eq. 2)
