"""Model noise shared by similar candidates.

    reward(i, j) = a_i + b_j + g_ij + e_ij                                                         (1)
    Cov(g_ij, g_kj) = share sd_i sd_k c(i, k),    Var(e_ij) = (1 - share) sd_i^2                   (2)

A model that answers a question at one temperature answers it at the next one, too: twenty such
candidates on five questions are five answers rather than a hundred. Where g is told apart from e,
the errors of similar candidates move together. So a kind that was asked few cases is known badly,
however many of its members were asked; and two of a kind compare well on the cases both were asked.
Where sharing is not shown, there is taken to be none. Errors of g end where all cases were asked,
since a mean over these very cases is sought.

c is a product kernel of its own over the space. Its hyper-parameters and the share are those of the
highest composite likelihood of pairs (Varin, Reid & Firth 2011): of the products of two candidates'
residuals, summed over the n cases that both were asked, less what each candidate's mean took of
them, with mean and, next to it, variance

    E[product] = n share c,    Var[product] = n (1 + (share c)^2)                                  (3)

Notation: M candidates, N cases, sd_i the noise of one cell.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.kernel import Distances, Kernel

MAX_PAIRS = 5_000
"""Pairs that are looked at; of more, as many evenly spread ones."""
MIN_PAIRS = 50
"""Pairs from which on a share is told."""
MARGIN = 2.0
"""Log-likelihood that sharing must be worth. Where answers are drawn anew there is none: it is worth
nothing then, and the little that is estimated nevertheless makes claims too sure."""
MIN_SHARED = 0.5
"""Cases that a pair must share, after what its means took."""
SHARE_PRIOR = (math.log(0.05 / 0.95), 2.0)
"""Mean and deviation of the share's log-odds before evidence: .05, between .001 and .7."""
N_STEPS = 25
N_BOUND_SDS = 4.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SharedNoise:
    """Share of a cell's noise that similar candidates have in common."""

    share: float
    """Of the noise's variance, in (0, 1)."""
    similarity: np.ndarray
    """c between all candidates, (M, M)."""

    @classmethod
    def estimate(
        cls, effects: CaseEffects, kernel: Kernel, distances: Distances
    ) -> "SharedNoise | None":
        """Return the estimate; ``None``: too few share cases, or noise is not shown to be shared.

        Args:
            effects: of measured noise, with their residuals.
            kernel: of the space, whose priors of lengths and weights c takes over.
            distances: between all candidates, (M, M).
        """
        pairs = _Pairs.of(effects, distances)
        if pairs is None:
            return None
        from scipy.optimize import minimize  # noqa: PLC0415 - a report need not wait for it

        n, (mean, sd) = kernel.n_dims, SHARE_PRIOR
        problem = _Problem(
            kernel,
            pairs,
            np.append(kernel.prior_mean[:n], mean),
            np.append(kernel.prior_sd[:n], sd),
        )
        reach = N_BOUND_SDS * problem.sd
        found = minimize(
            problem.value_and_gradient,
            problem.mean,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(problem.mean - reach, problem.mean + reach, strict=True)),
            options={"maxiter": N_STEPS},
        )
        if problem.gain(found.x) < MARGIN:
            return None
        share = _logistic(float(found.x[-1]))
        return cls(share=share, similarity=kernel.product(found.x, distances))

    def applied(self, effects: CaseEffects) -> CaseEffects:
        """Return the effects with errors that similar candidates share."""
        residuals = effects.residuals
        if residuals is None:
            return effects
        together = self.similarity * (residuals.loading @ residuals.loading.T)  # (eq. 2)
        errors = effects.errors + self.share * (together - np.diag(residuals.own))
        return replace(effects, errors=errors)


def without_noise(effects: CaseEffects, shared: SharedNoise | None) -> CaseEffects:
    """Return the effects of rewards that a case asked again would repeat: all of e is g.

    What candidate and case leave unexplained is a candidate's own then, or its kind's, and its error
    ends where all cases were asked, as that of a sample of a finite population does.

    Args:
        effects: as read from cells.
        shared: noise in common; ``None``: nothing.
    """
    residuals = effects.residuals
    if residuals is None:
        return effects
    both = residuals.loading @ residuals.loading.T
    together = np.zeros_like(both) if shared is None else shared.share * shared.similarity * both
    together[np.diag_indices_from(together)] = np.diag(both)
    return replace(effects, errors=effects.errors - np.diag(residuals.own) + together)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Pairs of candidates that were asked the same cases, (n_pairs,) each."""

    product: np.ndarray
    """Sum over shared cases of the product of both residuals, in units of their noise."""
    n_shared: np.ndarray
    """n."""
    distances: Distances
    """As columns, (n_pairs, 1)."""
    weight: float
    """Of each in the likelihood: pairs repeat each other, so all weigh as much as all cells."""

    @classmethod
    def of(cls, effects: CaseEffects, distances: Distances) -> "_Pairs | None":
        """Return the pairs; ``None``: there are too few."""
        residuals = effects.residuals
        if residuals is None:
            return None
        seen = residuals.seen.astype(np.float64)
        i, j = np.triu_indices(len(seen), 1)
        step = -(-len(i) // MAX_PAIRS) or 1
        i, j = i[::step], j[::step]
        n_cells = seen.sum(axis=1)
        both = (seen @ seen.T)[i, j]
        n_shared = both * (
            1.0 - 1.0 / n_cells[i] - 1.0 / n_cells[j] + both / (n_cells[i] * n_cells[j])
        )
        tells = n_shared >= MIN_SHARED
        if tells.sum() < MIN_PAIRS:
            return None
        i, j, n_shared = i[tells], j[tells], n_shared[tells]
        return cls(
            product=(residuals.standardized @ residuals.standardized.T)[i, j],
            n_shared=n_shared,
            distances=Distances(
                distances.numbers[:, i, j][:, :, None], distances.choices[:, i, j][:, :, None]
            ),
            weight=min(1.0, float(n_cells.sum()) / float(n_shared.sum())),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Problem:
    """Minus log posterior of c's log lengths and weights and the share's log-odds, (D + 1,)."""

    kernel: Kernel
    pairs: _Pairs
    mean: np.ndarray
    """Of the normal priors, (D + 1,)."""
    sd: np.ndarray

    def gain(self, params: np.ndarray) -> float:
        """Return how much higher the log-likelihood is than without any sharing."""
        pairs = self.pairs
        similarity = self.kernel.product(params, pairs.distances)[:, 0]
        correlation = _logistic(float(params[-1])) * similarity
        of_none = pairs.product**2 / pairs.n_shared
        gap = pairs.product - pairs.n_shared * correlation  # (eq. 3)
        spread = 1.0 + correlation**2
        of_some = gap**2 / (pairs.n_shared * spread) + np.log(spread)
        return 0.5 * pairs.weight * float((of_none - of_some).sum())

    def value_and_gradient(self, params: np.ndarray) -> tuple[float, np.ndarray]:
        """Return minus log posterior, up to a constant, and its gradient."""
        pairs, share = self.pairs, _logistic(float(params[-1]))
        similarity = self.kernel.product(params, pairs.distances)[:, 0]
        correlation = share * similarity
        variance = pairs.n_shared * (1.0 + correlation**2)  # (eq. 3)
        gap = pairs.product - pairs.n_shared * correlation
        squares = gap**2 / variance
        pull = (params - self.mean) / self.sd
        value = 0.5 * pairs.weight * float((squares + np.log(variance)).sum())
        value += 0.5 * float(pull @ pull)
        # d value / d correlation
        slope = pairs.weight * (
            -gap * pairs.n_shared / variance
            + (1.0 - squares) * pairs.n_shared * correlation / variance
        )
        gradient = [
            slope @ (correlation * self.kernel.log_slope(params, pairs.distances, d)[:, 0])
            for d in range(self.kernel.n_dims)
        ]
        of_share = (slope @ similarity) * share * (1.0 - share)
        return value, np.array([*gradient, of_share]) + pull / self.sd


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x))
