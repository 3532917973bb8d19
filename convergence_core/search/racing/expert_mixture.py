"""Mixture of experts among the draws: a lottery for each slot.

An expert's posterior is the base's, on the same evidence, with pseudo-observations at the points
whose reward it predicted. However many these are, together they count for five trials at most:

    z_i = warp(mu_i),   variance_i = max(slope_i^2 var_i, a trial's) / w_i,   w_i = nu_i / n       (1)

nu_i in [1, 5] as in ``rlp.experts``, so that sum_i w_i <= 5. The base's draws are taken from the
plan's own stream before any expert is asked, and the experts' from one of their own: without an
expert of positive weight no draw is another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from convergence_core.posterior.gaussian_process import GaussianProcess
from convergence_core.posterior.space_model import FittedSpaceModel
from convergence_core.records import sha256_hex
from convergence_core.rlp.experts import EDGE, strength
from convergence_core.rlp.statistical import trial_variance
from convergence_core.search.evolution import Pool
from convergence_core.search.racing.competitors import Competitors
from convergence_core.search.sampler import Expert

MAX_PROPOSALS = 40
"""Proposed points among the pool of a generation, if experts had all the weight."""


@dataclass(frozen=True, slots=True, eq=False)
class ExpertMixture:
    """Experts that may fill slots, with the points they propose."""

    experts: tuple[Expert, ...]
    competitors: Competitors
    proposals: Pool
    """Rows that nobody has asked; as many of each expert as its weight says."""
    rng: np.random.Generator

    @classmethod
    def of(
        cls, experts: Sequence[Expert], competitors: Competitors, rng: np.random.Generator
    ) -> "ExpertMixture | None":
        """Return the mixture; ``None``: no expert has a weight, or there is no evidence.

        Args:
            experts: as advised; those without weight are left out.
            competitors: of the generation.
            rng: of the plan; not moved.
        """
        weighted = tuple(expert for expert in experts if expert.weight > 0.0)
        if not weighted or competitors.fitted.learned is None:
            return None
        own = int(sha256_hex(repr(rng.bit_generator.state))[:16], 16)
        stream = np.random.default_rng(own)  # noqa: TID251 - a function of the plan's stream
        points = [
            point
            for expert in weighted
            for point in expert.proposals[: round(MAX_PROPOSALS * expert.weight)]
        ]
        genes = competitors.encoding.genes(points)
        proposals = competitors.only_new(Pool.without_parents(genes))
        return cls(weighted, competitors, proposals, stream)

    def values(
        self, values: np.ndarray, n_reserved: int, known: np.ndarray, new: np.ndarray
    ) -> np.ndarray:
        """Return the draws of all slots, those of proposed points last.

        Args:
            values: the base's draws, (n_slots, n_known + n_new).
            n_reserved: first slots, which stay the base's.
            known: members that compete, (n_known,).
            new: genes of the other competitors without the proposed points, (n_new, n_dims).

        Returns:
            (n_slots, n_known + n_new + n_proposals); minus infinity where a proposed point may
            not be chosen.
        """
        n_slots, n_proposals = len(values), len(self.proposals)
        drawn = np.hstack([values, np.full((n_slots, n_proposals), -np.inf)])
        weights = [expert.weight for expert in self.experts]
        chances = [max(0.0, 1.0 - sum(weights)), *weights]
        p = np.array(chances) / sum(chances)
        turns = self.rng.choice(len(p), size=n_slots, p=p) - 1  # -1: the base's
        turns[:n_reserved] = -1
        all_new = np.concatenate([new, self.proposals.genes])
        for k, expert in enumerate(self.experts):
            slots = np.flatnonzero(turns == k)
            if len(slots):
                process = with_expert(self.competitors.fitted, expert)
                drawn[slots] = self.competitors.draws(
                    known, all_new, self.rng, len(slots), process
                )
        return drawn


def with_expert(fitted: FittedSpaceModel, expert: Expert) -> GaussianProcess:
    """Return the process with an expert's pseudo-observations (eq. 1).

    Args:
        fitted: the base's model, with evidence.
        expert: whose predictions are added.
    """
    learned = fitted.learned
    assert learned is not None  # noqa: S101 - without evidence there is no mixture
    process, n = learned.process, len(expert.points)
    if n == 0:
        return process
    means = np.clip(np.array(expert.means), EDGE, 1.0 - EDGE)
    variances = np.array(expert.variances)
    nu = strength(means, variances)
    unit = np.maximum(learned.warp.slope(means) ** 2 * variances, trial_variance(fitted))
    points = fitted.model.encoding.encode(expert.points)
    return process.with_measurements(points, learned.warp.forward(means), unit * n / nu)
