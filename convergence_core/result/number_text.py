"""Numbers for display: counts, rewards, differences, prices."""

import math

UNKNOWN = "\N{EN DASH}"
"""Shown for a missing number."""


MOST_DIGITS = 17
"""Number of digits that distinguishes any two floats."""


def plural(n: int, noun: str, many: str | None = None) -> str:
    """Return a count with its noun, e.g. ``1 case``, ``1,200 cases``."""
    return f"{n:,} {noun if n == 1 else many or noun + 's'}"


def reward(value: float | None) -> str:
    """Return a mean reward with three decimals."""
    return UNKNOWN if value is None else f"{value:.3f}"


def distinguish(value: float, limit: float | None) -> str:
    """Return a number with three digits, or with as many as distinguish it from its limit."""
    digits = 3
    if limit is not None and value != limit:
        while digits < MOST_DIGITS and f"{value:.{digits}g}" == f"{limit:.{digits}g}":
            digits += 1
    return f"{value:.{digits}g}"


def signed(value: float) -> str:
    """Return a difference of rewards with a sign: a true minus, and no sign for zero."""
    text = f"{abs(value):.3f}"
    if float(text) == 0:
        return text
    return ("+" if value > 0 else "\N{MINUS SIGN}") + text


def interval(mean: float | None, low: float | None, high: float | None) -> str:
    """Return a mean reward as ``mean [low, high]``."""
    if mean is None or low is None or high is None:
        return UNKNOWN
    return f"{reward(mean)} [{reward(low)}, {reward(high)}]"


def signed_interval(mean: float, low: float, high: float, level: float | None = None) -> str:
    """Return a difference of rewards as ``+mean [low, high] (95 %)``, without an unknown level."""
    covered = "" if level is None else f" ({percent(level)})"
    return f"{signed(mean)} [{signed(low)}, {signed(high)}]{covered}"


def whole_percent(share: float | None) -> str:
    """Return a share in whole percent."""
    return UNKNOWN if share is None else f"{100 * share:.0f} %"


def percent(level: float) -> str:
    """Return a probability in percent, e.g. ``95 %``, without rounding to certainty."""
    if 0.995 <= level < 1:
        return f"{math.floor(level * 1000) / 10:g} %"
    if 0 < level < 0.005:
        return f"{math.ceil(level * 1000) / 10:g} %"
    return f"{100 * level:.3g} %"


def usd(value: float | None) -> str:
    """Return an amount of US dollars; small amounts keep two significant digits."""
    if value is None:
        return "unknown"
    value = float(f"{value:.12g}")  # sums in another order differ in the last bits
    if value == 0 or abs(value) >= 0.995:
        return f"${value:,.2f}"
    digits = max(2, 1 - math.floor(math.log10(abs(value))))
    return f"${value:.{digits}f}"


def spent(cost_usd: float | None, n_unpriced: int) -> str:
    """Return a total of known prices in US dollars, with the number of unpriced calls."""
    return usd(cost_usd) + left_out(n_unpriced)


def left_out(n_unpriced: int) -> str:
    """Return the number of calls that a total of known prices leaves out; empty if it has all."""
    return f" and {plural(n_unpriced, 'call')} of unknown price" if n_unpriced else ""


def evidence(log_e: float, log_threshold: float, verb: str = "of") -> str:
    """Return a test's evidence next to its threshold, e.g. ``69.4 of 20``.

    Evidence is the wealth of a bettor who starts with 1. Its mean is at most 1 if there is no
    effect.

    Args:
            log_e: Evidence, in nats.
            log_threshold: Decisive evidence, in nats.
            verb: Word between both numbers.
    """
    return f"{_three_digits(log_e)} {verb} {_three_digits(log_threshold)}"


def _three_digits(log_value: float) -> str:
    """Return exp of a logarithm with three significant digits, without exponent."""
    if log_value > math.log(1e6):
        return "over 1,000,000"
    value = float(f"{math.exp(log_value):.3g}")
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else "under 0.001"


def milliseconds(value: float | None) -> str:
    """Return a latency with three significant digits, e.g. ``812 ms``, ``1.25 s``."""
    if value is None:
        return UNKNOWN
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"
