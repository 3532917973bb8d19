"""Information gain of thoughts, and the evidence that they help.

The reward is a log-likelihood ratio against a baseline that never saw a thought (arXiv 2510.01265,
eq. 5), with departures:

* Outcomes are bins of a trial's reward, not tokens.
* p~ = .98 p + .02 p-: mixing bounds a loss at log .02, and unlike clipping it keeps
  E_p-[e^IG] = 1, which the e-value needs.
* Within a generation e-values are averaged and never multiplied, since its outcomes share
  surprises: products raise false alarms of a contentless bet from .02 to .34.

A baseline of the wrong shape lets any sentence gain that repairs the shape, whatever it says of
candidates. So help is claimed only if thoughts also tell candidates apart. A thought's *resolution*
(the term of forecast verification; A. H. Murphy, "A new vector partition of the probability score",
1973) is its gain over its own average forecast of the generation's m candidates:

    p^(b) = (1/m) sum_x p(b|x),    R(x) = log p~(b_x|x) - log p^(b_x)

with p^ in place of p- in p~. If chance had dealt its forecasts to the candidates, E[p~(b_x|pi(x))] would be p^(b_x),
so (1/m) sum_x e^R(x) is an e-value as well, whatever the outcomes share. A forecast that is the same
for all candidates has R = 0.

Notation: p(b) with the thought, p-(b) baseline, b_x the observed outcome of candidate x, pi a random
permutation of the candidates.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

MIX: Final = 0.02
"""Share of the baseline in p~."""
FLOOR: Final = math.log(MIX)
"""Least information gain, in nats."""
LEVEL: Final = 0.05
"""Probability, at most, that help is ever claimed where there is none."""


def mixed(p: np.ndarray, baseline: np.ndarray) -> np.ndarray:
    """Return p~ = .98 p + .02 p-; same shape as both."""
    return np.asarray(p + MIX * (baseline - p), np.float64)  # exactly p where both are equal


def information_gain(p: np.ndarray, baseline: np.ndarray, observed: int) -> float:
    """Return IG = log p~(b_x) - log p-(b_x), in nats, at least ``FLOOR``.

    Args:
        p: outcome's distribution with the thought, (n_outcomes,).
        baseline: without one, (n_outcomes,), all above 0.
        observed: index of what came.
    """
    # (RLP eq. 5), with p~ in place of p
    return math.log(float(mixed(p, baseline)[observed])) - math.log(float(baseline[observed]))


def resolutions(forecasts: np.ndarray, observed: Sequence[int]) -> np.ndarray:
    """Return R of each candidate, the gain over the thought's own average forecast, (m,), in nats.

    Args:
        forecasts: of one thought, one row for each candidate, (m, n_outcomes).
        observed: index of what came of each, (m,).
    """
    average = forecasts.mean(axis=0)  # p^, (n_outcomes,)
    pairs = zip(forecasts, observed, strict=True)
    return np.array([information_gain(p, average, b) for p, b in pairs], np.float64)


def reward_of(gains: Sequence[float]) -> float:
    """Return r = mean of IG over a generation's exogenous candidates, at least one."""
    return sum(gains) / len(gains)


def e_value(gains: Sequence[float]) -> float:
    """Return e = (1/m) sum_x e^IG(x), m at least 1: the evidence of one generation against "no help"."""
    return float(np.mean(np.exp(np.asarray(gains, np.float64))))


def interval_of(values: Sequence[float]) -> tuple[float, float] | None:
    """Return mean and standard error, in nats; ``None`` for fewer than two values."""
    if len(values) < 2:
        return None
    numbers = np.asarray(values, np.float64)
    return float(numbers.mean()), float(numbers.std(ddof=1) / math.sqrt(len(numbers)))


@dataclass(frozen=True, slots=True)
class EProcess:
    """The product over generations of e-values, and the highest that it ever was."""

    log_e: float = 0.0
    """Nats."""
    top_log_e: float = 0.0
    """Nats; Ville's inequality is about this one: P(ever e >= 1/alpha) <= alpha."""

    def after(self, value: float | None) -> "EProcess":
        """Return the evidence after a generation's e-value; ``None`` if it had none."""
        if value is None:
            return self
        log_e = self.log_e + math.log(value)
        return EProcess(log_e, max(self.top_log_e, log_e))

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "EProcess":
        """Return the evidence of generations in their order."""
        process = cls()
        for value in values:
            process = process.after(value)
        return process

    @property
    def e_value(self) -> float:
        """The product now."""
        return math.exp(min(self.log_e, 700.0))

    @property
    def top_e_value(self) -> float:
        """Its highest value so far."""
        return math.exp(min(self.top_log_e, 700.0))


def shows_help(mean_gain: float | None, top_e_value: float, top_resolution: float) -> bool:
    """Whether it may be said that thoughts helped.

    Both nulls must be rejected: "the baseline is right" and "which forecast went to which candidate
    is chance". If one of them is true, its e-value passes ``1 / LEVEL`` with probability ``LEVEL`` at
    most, and so does the smaller of the two: an intersection-union test (R. L. Berger 1982,
    Technometrics 24:295) needs no correction for there being two.

    Args:
        mean_gain: over generations, in nats; ``None`` if nothing was scored.
        top_e_value: highest product of the e-values against the baseline.
        top_resolution: the same against the thoughts' own average forecasts.
    """
    return min(top_e_value, top_resolution) >= 1.0 / LEVEL and (mean_gain or 0.0) > 0.0
