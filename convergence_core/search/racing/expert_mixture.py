"""Experts among the draws: for each place a lottery says whose posterior is drawn from.

An expert's posterior is the base's, on the same evidence, with pseudo-observations at the
candidates whose reward it predicted. However many these are, together they count for five trials
at most:

    z_i = warp(mu_i),   variance_i = max(slope_i^2 var_i, a trial's) / w_i,   w_i = nu_i / n,

nu_i in [1, 5] as in ``rlp.experts``, so that sum_i w_i <= 5. The base's draws are taken from the
plan's own stream before anybody else is heard, and the experts' from one of their own: without an
expert of positive weight no draw is another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.kernel import Distances, covariance
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import sha256_hex
from convergence_core.rlp.experts import EDGE, strength
from convergence_core.rlp.statistical import trial_variance
from convergence_core.search.evolution import Pool
from convergence_core.search.racing.competitors import Competitors
from convergence_core.search.sampler import Expert
from convergence_core.space.encoding import Points

MOST_PROPOSALS = 40
"""Proposed points among the pool of a generation, if experts had all the weight."""
JITTER = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class ExpertMixture:
    """Those experts who may fill places."""

    experts: tuple[Expert, ...]
    field: Competitors
    proposals: Pool
    """Rows that nobody has asked; as many of each expert as its weight says."""
    rng: np.random.Generator

    @classmethod
    def of(
        cls, experts: Sequence[Expert], field: Competitors, rng: np.random.Generator
    ) -> "ExpertMixture | None":
        """Return the panel; ``None``: nobody has a say.

        Args:
            experts: as advised; those without weight are left out.
            field: of the generation.
            rng: of the plan; not moved.
        """
        heard = tuple(expert for expert in experts if expert.weight > 0.0)
        if not heard or field.fitted.learned is None:
            return None
        own = int(sha256_hex(repr(rng.bit_generator.state))[:16], 16)
        stream = np.random.default_rng(own)  # noqa: TID251 - a function of the plan's stream
        return cls(heard, field, _proposed(heard, field), stream)

    def values(
        self, values: np.ndarray, n_reserved: int, known: np.ndarray, new: np.ndarray
    ) -> np.ndarray:
        """Return the draws of all places, those of proposed points last.

        Args:
            values: the base's draws, (n_places, n_known + n_new).
            n_reserved: first places, which stay the base's.
            known: members that compete, (n_known,).
            new: genes of the other competitors without the proposed points, (n_new, n_dims).

        Returns:
            (n_places, n_known + n_new + n_proposals); minus infinity where a proposed point may
            not be chosen.
        """
        n_places, n_proposals = len(values), len(self.proposals)
        drawn = np.hstack([values, np.full((n_places, n_proposals), -np.inf)])
        weights = [expert.weight for expert in self.experts]
        chances = [max(0.0, 1.0 - sum(weights)), *weights]
        p = np.array(chances) / sum(chances)
        turns = self.rng.choice(len(p), size=n_places, p=p) - 1  # -1: the base's
        turns[:n_reserved] = -1
        all_new = np.concatenate([new, self.proposals.genes])
        for k, expert in enumerate(self.experts):
            places = np.flatnonzero(turns == k)
            if len(places):
                drawn[places] = self.field.draws(
                    known, all_new, self.rng, len(places), with_expert(self.field.fitted, expert)
                )
        return drawn


def with_expert(fitted: FittedSpaceModel, expert: Expert) -> GaussianProcess:
    """Return the process with an expert's pseudo-observations; see the module.

    Args:
        fitted: the base's model, with evidence.
        expert: whose predictions are added.
    """
    learned = fitted.learned
    assert learned is not None  # noqa: S101 - without evidence nobody is heard
    process, n = learned.process, len(expert.places)
    if n == 0:
        return process
    means = np.clip(np.array(expert.means), EDGE, 1.0 - EDGE)
    variances = np.array(expert.variances)
    nu = strength(means, variances)
    unit = np.maximum(learned.warp.slope(means) ** 2 * variances, trial_variance(fitted))
    places = fitted.model.encoding.encode(expert.places)
    return condition(process, places, learned.warp.forward(means), unit * n / nu)


def condition(
    process: GaussianProcess, places: Points, targets: np.ndarray, variances: np.ndarray
) -> GaussianProcess:
    """Return a process that saw further measurements; its hyper-parameters stay.

    The Cholesky factor grows by blocks: L' = [[L, 0], [B, C]], B = (L^-1 k)^T,
    C C^T = k'' + diag(variances) - B B^T.

    Args:
        process: fitted to n measurements; they stay rows 0 to n - 1.
        places: of the further ones, m.
        targets: standardized, (m,).
        variances: of their errors, (m,).
    """
    params = process.log_params[:-1]
    of_choices = process.of_choices
    cross = covariance(
        process.layout, params, Distances.between(process.places, places, of_choices)
    )
    own = covariance(process.layout, params, Distances.between(places, places, of_choices))
    below = solve_triangular(process.factor, cross, lower=True, check_finite=False).T  # (m, n)
    rest = own + np.diag(variances) - below @ below.T
    scale = float(np.diag(own).mean())
    corner = np.linalg.cholesky(rest + np.eye(len(rest)) * JITTER * scale)
    n, m = len(process.factor), len(rest)
    factor = np.zeros((n + m, n + m))
    factor[:n, :n], factor[n:, :n], factor[n:, n:] = process.factor, below, corner
    before = process.factor @ (process.factor.T @ process.weights)  # z = L L^T w
    weights = cho_solve((factor, True), np.concatenate([before, targets]))
    return replace(
        process,
        places=process.places.join(places),
        factor=factor,
        weights=np.asarray(weights, np.float64),
    )


def _proposed(experts: Sequence[Expert], field: Competitors) -> Pool:
    """Return the points that experts propose, as many as their weights say, each nobody's yet."""
    points = [
        point
        for expert in experts
        for point in expert.proposals[: round(MOST_PROPOSALS * expert.weight)]
    ]
    if not points:
        return Pool.empty(len(field.encoding.names))
    genes = field.encoding.genes(points)
    return field.only_new(Pool(genes, np.full((len(points), 2), -1, dtype=np.intp)))
