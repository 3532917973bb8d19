"""Item response model: abilities of candidates, easiness of cases.

    P(reward(i, j) = 1) = p_ij = 1 / (1 + exp(-(a_i + b_j))),    b_j ~ N(0, variance)              (1)
    theta_i = sum_j w_j p_ij                                                                       (2)

the model of Rasch (1960) with random items (De Boeck 2008). An answer has information p (1 - p) (3)
on an ability: that a good model is right where all are says nothing of it, and where half of its like
fail every answer counts (Lord 1980, ch. 5). A linear model takes both for the same, so questions whose
answers are known beforehand outvote the others; and a candidate that is better where it is hard would
be taken to be better everywhere.

Easiness is fitted by penalized quasi-likelihood (Breslow & Clayton 1993), with answers linearized at
abilities that are shrunk to the median a little,

    a_i + b_j + (y_ij - p_ij) / (p_ij (1 - p_ij))                                                  (4)

Then each candidate's answers are linearized given the cases, at that ability or later at the one that
the process over the space predicts, with b integrated out by the logistic-normal approximation
(Johnson & Kotz 1970)

    E[p_ij] = 1 / (1 + exp(-c_j (a_i + E b_j))),    c_j = (1 + PROBIT Var b_j)^-1/2                (5)

Cases that are not shown to differ are none of it: then answers are plain coins, which ``case_effects``
knows.

Notation: M candidates, N cases, w_j the cases' shares in the mean.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit, xlogy

from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.random_effects import RandomEffectsFit, Residuals, cell_weights

MARGIN = 8.0
"""Log-likelihood that differences between cases must be worth. New candidates that share a chunk and
are of one kind by chance look like easy cases, in one first generation of ninety to the worth of more."""
N_ROUNDS = 30
"""Rounds of estimating at most."""
TOLERANCE = 0.01
"""Change of log-odds, and relative one of the variance, at which the rounds end."""
N_STEPS = 30
"""Newton steps at most from mean rewards to abilities."""
EDGE = 0.01
"""Least p (1 - p): nothing that was asked a few times is known to be certain."""
N_PRIOR_CELLS = 4.0
"""Cells of average reward that an ability is shrunk to the median by."""
CERTAIN = 0.002
"""Distance from 0 and 1 that mean rewards keep, so that their log-odds are finite."""
FIRST_VARIANCE = 1.0
"""Of b, where the rounds begin."""
PROBIT = (16.0 * 3.0**0.5 / (15.0 * np.pi)) ** 2
"""Square of the factor that makes a logistic curve nearly a normal one."""
VARIANCES = (0.05, 16.0)
"""Least and greatest. By a deviation of the least, half right are .45 or .55, and all cases have nearly
the same information; by one of the greatest, .02 or .98."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Measurement:
    """Mean rewards as measured by answers."""

    mean: np.ndarray
    """Estimates of theta, (M,)."""
    errors: np.ndarray
    """Their covariance, (M, M)."""
    noise: np.ndarray
    """Variance of one answer as evidence of theta, where cases are asked by information, (M,)."""
    case_effect: np.ndarray
    """Expected rewards of the median candidate less their mean over cases, (N,)."""
    residuals: Residuals


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ItemResponse:
    """Abilities at which answers are linearized, and the posterior of easiness."""

    ability: np.ndarray
    """a, (M,)."""
    easiness: np.ndarray
    """Posterior means of b, 0 of a case that nobody was asked, (N,)."""
    easiness_variance: np.ndarray
    """Posterior variances of b, (N,)."""
    variance: float
    """Of b before any answer; 0: cases do not differ."""
    case_weight: np.ndarray
    """w, (N,)."""

    @classmethod
    def estimate(cls, evidence: Evidence) -> "ItemResponse | None":
        """Return the estimate; ``None``: rewards are not 0 and 1, or cases are not shown to differ."""
        n_cases = len(evidence.case_ids)
        if not evidence.binary or n_cases < 2:
            return None
        cells = cell_weights(evidence)
        same = cls(
            ability=_first_abilities(evidence, cells),
            easiness=np.zeros(n_cases),
            easiness_variance=np.zeros(n_cases),
            variance=0.0,
            case_weight=evidence.case_weight,
        )
        found = replace(same, variance=FIRST_VARIANCE)._fixed_point(evidence, cells)
        if found.variance <= VARIANCES[0]:
            return None
        gain = found._log_likelihood(evidence, cells)
        gain -= same._fixed_point(evidence, cells)._log_likelihood(evidence, cells)
        return found if gain >= MARGIN else None

    def relinearized(self, mean: np.ndarray) -> "ItemResponse":
        """Return the estimate with answers linearized at these mean rewards, (M,).

        Easiness stays: linearized far from where answers lie, it would be estimated wildly.
        """
        return replace(self, ability=self.ability_of(mean, start=self.ability))

    def expected(self, ability: np.ndarray) -> np.ndarray:
        """Return the expected rewards of n abilities on all cases, b integrated out, (n, N)."""
        log_odds = self._scale * (ability[:, None] + self.easiness)
        return np.asarray(expit(log_odds), np.float64)  # (eq. 5)

    def ability_of(self, mean: np.ndarray, start: np.ndarray | None = None) -> np.ndarray:
        """Return the abilities of these mean rewards, by Newton's method, (n,)."""
        target = np.clip(mean, CERTAIN, 1.0 - CERTAIN)
        ability = logit(target) if start is None else start
        for _ in range(N_STEPS):
            p = self.expected(ability)
            gap = (target - p @ self.case_weight) / np.maximum(self._slopes(p).sum(axis=1), 1e-4)
            step = np.clip(gap, -1.0, 1.0)
            ability = ability + step
            if np.abs(step).max() < TOLERANCE / 10:
                break
        return np.asarray(ability, np.float64)

    def information(self, mean: float) -> np.ndarray:
        """Return the information of an answer on a candidate of this mean reward, (N,).

        A case that nobody was asked counts as one of average easiness.
        """
        ability = self.ability_of(np.array([mean]))
        p = expit(ability + self.easiness)
        return np.asarray(self.case_weight * p * (1.0 - p), np.float64)  # (eq. 3)

    def measure(self, evidence: Evidence) -> Measurement:
        """Return mean rewards, by the tangent of theta at the abilities."""
        p = self.expected(self.ability)
        noise = _information(p)  # of an answer
        information = self._scale**2 * noise
        cells = cell_weights(evidence)
        # For the posterior variance of b alone: its mean is that of the first linearization.
        cases = RandomEffectsFit.solve(np.zeros_like(p), cells * information, self.variance)
        slopes = self._slopes(p)
        slope = slopes.sum(axis=1)
        own = slope**2 / cases.total
        by_answer = cells * self._scale / cases.total[:, None]  # of an ability, (M, N)
        apart = np.where(cells > 0, evidence.mean - p, 0.0)
        sd = np.sqrt(noise)
        typical = self.expected(np.array([np.median(self.ability)]))[0]
        return Measurement(
            mean=p @ self.case_weight + slope * (by_answer * apart).sum(axis=1),  # (eq. 2)
            errors=cases.errors(slopes - slope[:, None] * cases.share, own),
            noise=slope**2 / np.average(information, 1, self.case_weight * information),
            case_effect=typical - typical @ self.case_weight,
            residuals=Residuals(
                standardized=apart / sd,
                seen=evidence.count > 0,
                loading=(self.case_weight - slope[:, None] * by_answer) * sd,
                own=own,
            ),
        )

    def alone(
        self, rows: np.ndarray, count: np.ndarray, rewards: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of theta from some answers alone, were b known, and variances, (n,).

        Args:
            rows: candidates, (n,).
            count: answers to each case, at least one of each candidate, (n, N).
            rewards: their sums, (n, N).
        """
        p = self.expected(self.ability[rows])
        slope = self._slopes(p).sum(axis=1)
        information = self._scale**2 * _information(p)
        total = (count * information).sum(axis=1)
        apart = (self._scale * (rewards - count * p)).sum(axis=1) / total
        return np.clip(p @ self.case_weight + slope * apart, 0.0, 1.0), slope**2 / total

    @property
    def _scale(self) -> np.ndarray:
        """c, by which not knowing b flattens the curve of each case, (N,) (eq. 5)."""
        return np.asarray(1.0 / np.sqrt(1.0 + PROBIT * self.easiness_variance), np.float64)

    def _slopes(self, p: np.ndarray) -> np.ndarray:
        """Return how theta moves with b where rewards p are expected, (n, N); sums are by ability."""
        return np.asarray(self.case_weight * self._scale * p * (1.0 - p), np.float64)

    def _fit(self, evidence: Evidence, cells: np.ndarray) -> RandomEffectsFit:
        """Return the random effects of linearized answers."""
        log_odds = self.ability[:, None] + self.easiness
        p = expit(log_odds)  # (eq. 1)
        information = _information(p)
        response = np.where(
            cells > 0, log_odds + (evidence.mean - p) / information, 0.0
        )  # (eq. 4)
        return RandomEffectsFit.solve(response, cells * information, self.variance)

    def _fixed_point(self, evidence: Evidence, cells: np.ndarray) -> "ItemResponse":
        """Return the fixed point."""
        shown = np.asarray((cells > 0).any(axis=0))
        center = _center(evidence, cells)
        prior = N_PRIOR_CELLS * center * (1.0 - center)
        now = self
        for _ in range(N_ROUNDS):
            cases = now._fit(evidence, cells)
            pull = prior * float(np.median(now.ability))
            ability = (cases.total * cases.free + pull) / (cases.total + prior)
            variance = now.variance
            if variance:
                variance = float(np.clip(cases.next_variance(variance, shown)[0], *VARIANCES))
            change = max(
                np.abs(ability - now.ability).max(), np.abs(cases.effect - now.easiness).max()
            )
            is_fixed = (
                change < TOLERANCE and abs(variance - now.variance) <= TOLERANCE * now.variance
            )
            now = replace(
                now,
                ability=ability,
                easiness=cases.effect,
                easiness_variance=cases.effect_variance,
                variance=variance,
            )
            if is_fixed:
                break
        return now

    def _log_likelihood(self, evidence: Evidence, cells: np.ndarray) -> float:
        """Return the log-likelihood with abilities and b integrated out by Laplace's method."""
        cases = self._fit(evidence, cells)
        p = np.clip(expit(self.ability[:, None] + self.easiness), 1e-9, 1.0 - 1e-9)
        of_cells = float(
            (cells * (xlogy(evidence.mean, p) + xlogy(1.0 - evidence.mean, 1.0 - p))).sum()
        )
        of_abilities = float(np.log(cases.total).sum())
        if not self.variance:
            return of_cells - 0.5 * of_abilities
        squares = float(self.easiness @ self.easiness) / self.variance
        return of_cells - 0.5 * (squares + cases.log_det + of_abilities)


def _information(p: np.ndarray) -> np.ndarray:
    """Return p (1 - p): the variance of an answer, and its information on the log-odds."""
    return np.asarray(np.maximum(p * (1.0 - p), EDGE), np.float64)


def _center(evidence: Evidence, cells: np.ndarray) -> float:
    """Return the mean reward of all cells."""
    center = float((cells * evidence.mean).sum() / cells.sum())
    return min(max(center, CERTAIN), 1.0 - CERTAIN)


def _first_abilities(evidence: Evidence, cells: np.ndarray) -> np.ndarray:
    """Return log-odds of mean rewards, shrunk to the center a little, (M,)."""
    n = cells.sum(axis=1)
    right = (cells * evidence.mean).sum(axis=1) + N_PRIOR_CELLS * _center(evidence, cells)
    return np.asarray(logit(right / (n + N_PRIOR_CELLS)), np.float64)
