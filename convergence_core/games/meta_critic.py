"""Meta-critic: which games' hard cases help a search.

By a regression over a search's trials (arXiv 2411.16905, section 5 asks for such a critic and gives none).
Each approved hard case enters a search by a coin with a stored probability, so which cases are measured does
not depend on what they showed before. What a case that was *used* does to a search follows from its scores:
a search that gives a case the weight w selects by it, and selection changes the mean score on the user's
cases by w times its covariance with the score on the case (Price 1970, Nature 227, eq. 1).

Notation: candidates of one generation on one case are compared with their mean, so that neither difficulty
nor the search's progress counts; x_cj, mean of candidate c on the used cases of game j; y_c, on the user's.

    y_c = sum_j beta_j x_cj + noise,    beta_j ~ N(0, .1^2), noise ~ N(0, s^2)
    S = (X'X / s^2 + I / .1^2)^-1,    m = S X'y / s^2,    P_j(keep) = P(beta_j > .04)

beta_j: how much higher a candidate that passes the cases of j scores on the user's cases than one that fails
them. s^2 comes from the residuals.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import numpy as np

from convergence_core.records import sha256_hex

PRIOR_SD: Final = 0.1
"""Prior standard deviation of a game's effect."""
LEAST_EFFECT: Final = 0.04
"""Minimum useful effect, below which a game's cases cost more than they inform; the user's own
cases reach .15 in the benchmark.
"""
LEAST_SD: Final = 0.01
"""Minimum standard deviation of the noise, in reward."""
MOST_SD: Final = 0.5
"""Standard deviation of rewards that are 0 or 1 equally often, the maximum in [0, 1]."""
LEAST_FREE: Final = 10
"""Minimum degrees of freedom for estimating the noise from residuals."""
P_SURE: Final = 0.9
"""Posterior probability at which a statement about a game takes effect."""
UNDECIDED, KEPT, FADED, DROPPED = 0.5, 0.9, 0.25, 0.1
"""Probabilities of a coin. None is 0 or 1: every game stays measured."""
LEVEL: Final = 0.8
"""Level of the posterior intervals of effects."""


@dataclass(frozen=True, slots=True)
class Coin:
    """Coin of one approved case in one search."""

    game: str
    probability: float
    """Probability that the search uses the case, above 0 and below 1."""
    is_used: bool

    @classmethod
    def of(cls, case_id: str, game: str, probability: float, *, seed: str) -> "Coin":
        """Toss the coin: the same case, seed and probability always give the same result."""
        place = int(sha256_hex(f"{seed} {case_id}")[:13], 16) / 16**13
        return cls(game, probability, place < probability)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReward:
    """Reward of one candidate on one case in one generation of a search."""

    run_id: str
    generation: int
    candidate_id: str
    case_id: str
    game: str | None
    """Game that found the case; ``None`` for the user's cases."""
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GameEffect:
    """Evidence on one game."""

    mean: float
    """m: posterior mean of beta."""
    sd: float
    """Posterior standard deviation."""
    n_cases: int
    """Number of distinct cases that searches used."""
    n_trials: int
    """Number of trials that differ from the others of their generation on a case of the game."""

    @classmethod
    def prior(cls) -> "GameEffect":
        """Return the prior of a game whose cases no search has used."""
        return cls(mean=0.0, sd=PRIOR_SD, n_cases=0, n_trials=0)

    @property
    def p_keep(self) -> float:
        """P(beta > LEAST_EFFECT)."""
        return self._p_above(LEAST_EFFECT)

    @property
    def is_dropped(self) -> bool:
        """Whether the game's cases mislead searches."""
        return self._p_above(0.0) <= 1.0 - P_SURE

    @property
    def probability(self) -> float:
        """Probability of its cases' coins in the next search."""
        if self.is_dropped:
            return DROPPED
        if self.p_keep >= P_SURE:
            return KEPT
        return FADED if self.p_keep <= 1.0 - P_SURE else UNDECIDED

    @property
    def interval(self) -> tuple[float, float]:
        """Posterior interval of beta at ``LEVEL``."""
        half = 1.2815515655446004 * self.sd  # the normal quantile of .9
        return self.mean - half, self.mean + half

    def _p_above(self, value: float) -> float:
        return 0.5 * math.erfc((value - self.mean) / self.sd / math.sqrt(2.0))


def effects(rewards: Sequence[CaseReward]) -> dict[str, GameEffect]:
    """Return game → effect, of the games with a case that a search used.

    Args:
        rewards: Rewards of searches with coins, in any order.

    Raises:
        ValueError: a reward is not finite.

    Example:
        >>> [game for game, effect in effects(rewards).items() if effect.is_dropped]
        ['sums']
    """
    games = sorted({each.game for each in rewards if each.game is not None})
    x, y, n_generations = paired_trials(rewards, games)
    mean, covariance = posterior(x, y, _noise_variance(x, y, n_generations))
    return {
        game: GameEffect(
            mean=float(mean[j]),
            sd=math.sqrt(float(covariance[j, j])),
            n_cases=len({each.case_id for each in rewards if each.game == game}),
            n_trials=int(np.count_nonzero(x[:, j])),
        )
        for j, game in enumerate(games)
    }


def paired_trials(
    rewards: Sequence[CaseReward], games: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return X, (n_trials, n_games), and y, (n_trials,), of trials with both kinds of cases.

    The third value is the number of generations, each of which has one mean removed.

    Args:
        rewards: See ``effects``.
        games: Columns of X, which are 0 for trials without a case of the game.

    Raises:
        ValueError: a reward is not finite.
    """
    of_case: dict[tuple[str, int, str], list[float]] = defaultdict(list)
    for each in rewards:
        if not math.isfinite(each.reward):
            raise ValueError(
                f"the reward of case {each.case_id} must be finite, but is {each.reward}"
            )
        of_case[each.run_id, each.generation, each.case_id].append(each.reward)
    mean_of = {case: fmean(scores) for case, scores in of_case.items() if len(scores) > 1}
    trials: dict[tuple[str, int, str], dict[str | None, list[float]]] = {}
    for each in rewards:
        mean = mean_of.get((each.run_id, each.generation, each.case_id))
        if mean is not None:
            trial = trials.setdefault((each.run_id, each.generation, each.candidate_id), {})
            trial.setdefault(each.game, []).append(each.reward - mean)
    both = {trial: gaps for trial, gaps in trials.items() if None in gaps and len(gaps) > 1}
    x = [[fmean(gaps.get(game, (0.0,))) for game in games] for gaps in both.values()]
    y = [fmean(gaps[None]) for gaps in both.values()]
    n_generations = len({(run_id, generation) for run_id, generation, _ in both})
    return np.array(x).reshape(len(both), len(games)), np.array(y), n_generations


def posterior(
    x: np.ndarray, y: np.ndarray, noise_variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return m, (n_games,), and S, (n_games, n_games).

    Args:
        x: X, (n_trials, n_games).
        y: (n_trials,).
        noise_variance: s^2.
    """
    precision = x.T @ x / noise_variance + np.eye(x.shape[1]) * PRIOR_SD**-2.0
    covariance = np.linalg.inv(precision)  # S
    return covariance @ (x.T @ y) / noise_variance, covariance


def _noise_variance(x: np.ndarray, y: np.ndarray, n_generations: int) -> float:
    """Return s^2, at least ``LEAST_SD`` squared, or the maximum for too few trials."""
    n_free = len(y) - x.shape[1] - n_generations
    if n_free < LEAST_FREE:
        return MOST_SD**2
    fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return float(max(np.sum((y - fitted) ** 2) / n_free, LEAST_SD**2))
