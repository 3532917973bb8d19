"""How limits and what is spent of them are told to people."""

from typing import Literal

LimitName = Literal["max_usd", "max_calls", "max_tokens", "max_minutes"]
"""Key under ``budget``."""


def dollars(usd: float) -> str:
    """Return an amount of money for people: four decimals, or two digits of small amounts."""
    if usd == 0 or abs(usd) >= 0.001:
        return f"${usd:,.4f}"
    decimals = 4
    while decimals < 12 and abs(usd) < 10.0 ** (1 - decimals):
        decimals += 1
    return f"${usd:.{decimals}f}"


def written(name: LimitName, limit: float) -> str:
    """Return a limit as it is written in the configuration."""
    return f"budget.{name}={limit:.12g}"


def shown(name: LimitName, used: float) -> str:
    """Return what is spent of a limit, with its unit."""
    if name == "max_usd":
        return dollars(used)
    if name == "max_minutes":
        return f"{used:.1f} minutes"
    return f"{used:,.0f} {name.removeprefix('max_')}"
