"""Information gain of forecasts, and the evidence that they help.

The reward is a log-likelihood ratio against a baseline that never saw a thought (arXiv 2510.01265,
eq. 5), with departures:

* Outcomes are scores, not tokens, and the baseline is the search's own posterior.
* p~ = .98 p + .02 p-: mixing bounds a loss at log .02, and unlike clipping it keeps E_p-[e^IG] =
  1, which the e-value needs.
* A side of a forecast is at least a tenth as wide as the posterior, so that no bet on a point wins
  more than a few nats.
* Within a generation e-values are averaged and never multiplied, since its outcomes share
  surprises: products raise false alarms of a contentless bet from .02 to .34.

If the baseline has the wrong shape, any thought that corrects the shape gains, whatever it
forecasts for candidates. So help is claimed only if forecasts also distinguish candidates. Their
*resolution* (the term of forecast verification; A. H. Murphy, "A new vector partition of the
probability score", 1973) is the gain over the average forecast of the generation's m candidates:

    p^(y) = (1/m) sum_x p(y|x),    R(x) = log p~(y_x|x) - log p^(y_x)

with p^ in place of p- in p~. If forecasts were assigned to candidates at random, E[p~(y_x|pi(x))]
would be p^(y_x). So (1/m) sum_x e^R(x) is an e-value too, whatever the outcomes share. A forecast
that is the same for all candidates has R = 0.

Notation: p(y) forecast, p-(y) baseline, y_x the observed score of candidate x, pi a random
permutation of the candidates; all densities.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from convergence_core.rlp.quantiles import LEAST_SCALE, Quantiles

MIX: Final = 0.02
"""Share of the baseline in p~, and of the uniform distribution in the baseline."""
FLOOR: Final = math.log(MIX)
"""Minimum information gain, in nats."""
LEVEL: Final = 0.05
"""Maximum probability of ever claiming help that does not exist."""
NARROWEST: Final = 0.1
"""Minimum scale of a forecast, in standard deviations of the posterior."""


def baseline_density(posterior: Quantiles, y: float) -> float:
    """Return p-(y) = .98 f(y) + .02, in [0, 1]: the posterior may be wrong."""
    return (1.0 - MIX) * posterior.density(y) + MIX


def forecast_density(forecast: Quantiles, posterior: Quantiles, y: float) -> float:
    """Return p(y), no side narrower than ``NARROWEST`` of the posterior."""
    return forecast.density(y, max(LEAST_SCALE, NARROWEST * math.sqrt(posterior.variance)))


def information_gain(p: float, baseline: float) -> float:
    """Return IG = log p~ - log p-, in nats, at least ``FLOOR``.

    Args:
        p: Probability, or density, of the outcome under the forecast.
        baseline: The same under the baseline, above 0.
    """
    mixed = p + MIX * (baseline - p)  # exactly p where both are equal
    return math.log(mixed) - math.log(baseline)  # (RLP eq. 5), with p~ in place of p


def resolutions(densities: np.ndarray) -> np.ndarray:
    """Return R of each candidate, (m,), in nats.

    Args:
        densities: Density of row x's forecast at the score of column x', (m, m).
    """
    average = densities.mean(axis=0)  # p^(y_x), (m,)
    pairs = zip(np.diag(densities), average, strict=True)
    # 1e-300: far from every forecast all densities are 0.
    return np.array([information_gain(p, max(a, 1e-300)) for p, a in pairs], np.float64)


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
    """Product of e-values over generations, and its highest value so far."""

    log_e: float = 0.0
    """Nats."""
    top_log_e: float = 0.0
    """Nats. Ville's inequality bounds it: P(ever e >= 1/alpha) <= alpha."""

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
        """Current product."""
        return math.exp(min(self.log_e, 700.0))

    @property
    def top_e_value(self) -> float:
        """Its highest value so far."""
        return math.exp(min(self.top_log_e, 700.0))


def shows_help(mean_gain: float | None, top_e_value: float, top_resolution: float) -> bool:
    """Return whether the evidence supports that thoughts helped.

    Both nulls must be rejected: "the baseline is right" and "which forecast went to which
    candidate is chance". If one of them is true, its e-value passes ``1 / LEVEL`` with probability
    ``LEVEL`` at most, and so does the smaller of the two: an intersection-union test (R. L. Berger
    1982, Technometrics 24:295) needs no correction for two tests.

    Args:
        mean_gain: Mean gain over generations, in nats; ``None`` if nothing was scored.
        top_e_value: Highest product of the e-values against the baseline.
        top_resolution: The same against the average of the forecasts.
    """
    return min(top_e_value, top_resolution) >= 1.0 / LEVEL and (mean_gain or 0.0) > 0.0
