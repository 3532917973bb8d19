"""Meta-critic: which games raise the incumbent's reward on held-out cases.

After the fact, by a regression whose design is random (arXiv 2411.16905, section 5 asks for such a
critic and gives none): in round t each game j is included by an independent coin of probability
P_tj = clip(P_j(keep), .1, .9), which is logged. Without coins the inclusion of a game depends on what
it did before, effects are not identified, and nothing is reported.

Notation: x_tj, 1 if round t included game j; y_t, change of the incumbent's reward on held-out cases
(paired); beta_j, effect of game j on a round.

    y_t = a + sum_j beta_j x_tj + noise,    a ~ N(0, 1000), beta_j ~ N(0, .05^2), noise ~ N(0, s^2)
    S = (X'X / s^2 + Lambda)^-1,    m = S X'y / s^2,    P_j(keep) = Phi(m_j / sqrt(S_jj))

s^2 comes from paired replicates where they are known, else from the residuals; its least value is .01^2.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.errors import ConvergenceError

PRIOR_SD: Final = 0.05
"""Of a game's effect on a round, in reward."""
PRIOR_VARIANCE_OF_A: Final = 1_000.0
LEAST_SD: Final = 0.01
"""Of the noise, in reward."""
N_FIRST: Final = 8
"""Rounds in which every coin is fair."""
LEAST_P: Final = 0.1
MOST_P: Final = 0.9
LEVEL: Final = 0.8
"""Of the posterior intervals of effects."""


class NoCoinsError(ConvergenceError, ValueError):
    """Rounds have no logged coins, so no effect of a game is identified."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Coin:
    """One game's coin of one round."""

    probability: float
    """Of being included, in [LEAST_P, MOST_P]."""
    is_included: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class GameRound:
    """One round as the meta-critic reads it."""

    round_number: int
    coins: Mapping[str, Coin]
    """Game → its coin; empty: the games were chosen in another way."""
    change: float
    """Of the incumbent's mean reward on held-out cases, after less before, paired by case."""
    change_variance: float | None = None
    """Of ``change``, from paired replicates; ``None`` if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GameEffect:
    """What the rounds so far say of one game."""

    game: str
    mean: float
    """m: of beta, in reward per round."""
    sd: float
    """Of the posterior."""
    n_included: int
    n_rounds: int
    """Rounds with a coin of the game."""

    @property
    def p_keep(self) -> float:
        """P(beta > 0)."""
        return 0.5 * math.erfc(-self.mean / self.sd / math.sqrt(2.0))

    @property
    def interval(self) -> tuple[float, float]:
        """Posterior interval of beta at ``LEVEL``."""
        half = 1.2815515655446004 * self.sd  # the normal quantile of .9
        return self.mean - half, self.mean + half


def toss(p_keep: Mapping[str, float], n_rounds: int, rng: np.random.Generator) -> dict[str, Coin]:
    """Return the coins of the next round, to be logged before it.

    Args:
        p_keep: game → P(keep) after the rounds so far; all games on offer, in the order tossed.
        n_rounds: rounds so far.
        rng: of the coins alone.
    """
    coins = {}
    for game, p in p_keep.items():
        probability = 0.5 if n_rounds < N_FIRST else min(MOST_P, max(LEAST_P, p))
        coins[game] = Coin(probability, bool(rng.random() < probability))
    return coins


def effects(rounds: Sequence[GameRound]) -> tuple[GameEffect, ...]:
    """Return the effect of every game that had a coin, by name.

    A game without a coin in a round was not included in it.

    Raises:
        NoCoinsError: a round has no coins, or a coin that could fall on one side only.
        ValueError: a change or variance is not finite, or a round came twice.
    """
    _check(rounds)
    games = sorted({game for past in rounds for game in past.coins})
    x = np.ones((len(rounds), 1 + len(games)))  # X, the first column for a
    for t, past in enumerate(rounds):
        x[t, 1:] = [g in past.coins and past.coins[g].is_included for g in games]
    y = np.array([past.change for past in rounds])
    mean, covariance = posterior(x, y, _noise_variance(x, y, rounds))
    return tuple(
        GameEffect(
            game=game,
            mean=float(mean[j]),
            sd=math.sqrt(float(covariance[j, j])),
            n_included=int(x[:, j].sum()),
            n_rounds=sum(game in past.coins for past in rounds),
        )
        for j, game in enumerate(games, 1)
    )


def p_keep_of(rounds: Sequence[GameRound], games: Sequence[str]) -> dict[str, float]:
    """Return P(keep) of the games on offer, in their order; one half for new ones.

    Raises:
        NoCoinsError: as ``effects``.
    """
    known = {effect.game: effect.p_keep for effect in effects(rounds)} if rounds else {}
    return {game: known.get(game, 0.5) for game in games}


def posterior(
    x: np.ndarray, y: np.ndarray, noise_variance: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return m and S.

    Args:
        x: a column of ones, then one for each game, (n_rounds, 1 + n_games).
        y: changes, (n_rounds,).
        noise_variance: s^2.
    """
    precision = np.full(x.shape[1], PRIOR_SD**-2.0)
    precision[0] = 1.0 / PRIOR_VARIANCE_OF_A
    covariance = np.linalg.inv(x.T @ x / noise_variance + np.diag(precision))  # S
    return covariance @ (x.T @ y) / noise_variance, covariance


def _noise_variance(x: np.ndarray, y: np.ndarray, rounds: Sequence[GameRound]) -> float:
    """Return s^2, at least ``LEAST_SD`` squared."""
    known = [past.change_variance for past in rounds if past.change_variance is not None]
    n_free = len(y) - x.shape[1]
    if len(known) == len(rounds):
        variance = float(np.mean(known))
    elif n_free > 0:
        fitted = x @ np.linalg.lstsq(x, y, rcond=None)[0]
        variance = float(np.sum((y - fitted) ** 2) / n_free)
    else:  # too few rounds for residuals: as if no game had an effect
        variance = float(np.var(y, ddof=1)) if len(y) > 1 else PRIOR_SD**2
    return max(variance, LEAST_SD**2)


def _check(rounds: Sequence[GameRound]) -> None:
    seen: set[int] = set()
    for past in rounds:
        if past.round_number in seen:
            raise ValueError(f"round {past.round_number} must come once, but came twice")
        seen.add(past.round_number)
        if not past.coins or any(not 0.0 < c.probability < 1.0 for c in past.coins.values()):
            raise NoCoinsError(
                f"round {past.round_number} must log a probability between 0 and 1 for each game: "
                "without it no effect can be estimated. Include games by `toss`."
            )
        numbers = (past.change, past.change_variance or 0.0)
        if not all(map(math.isfinite, numbers)) or numbers[1] < 0.0:
            raise ValueError(f"change and variance of round {past.round_number} must be finite")
