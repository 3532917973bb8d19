"""Faults on purpose: the fault that an attempt meets, and limits that turn requests away."""

import email.utils
import math
from typing import Literal, get_args

from tasks.mock.hash_uniform import uniform
from tasks.mock.options import MockOptions

FaultKind = Literal["429", "500", "hang", "cut", "invalid", "answer"]
"""``answer``: none."""
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

UNLIMITED_RPM = 6e8
"""What the headers call the limit where there is none: more than any client sends, so that one
which heeds the headers is not slowed down."""
TOKENS_PER_MINUTE = 6e11
"""What the headers call the limit of tokens, which is never enforced."""


def fault_of(options: MockOptions, digest: str, attempt: int) -> FaultKind:
    """Return the fault of the ``attempt``-th attempt at a request, whenever it arrives."""
    u = uniform("fate", options.seed, digest, attempt)
    rates: dict[FaultKind, float] = {
        "429": options.rate_429,
        "500": options.rate_500,
        "hang": options.rate_hang,
        "cut": options.rate_cut,
        "invalid": options.rate_invalid,
    }
    for kind, rate in rates.items():
        if u < rate:
            return kind
        u -= rate
    return "answer"


def retry_after(
    options: MockOptions, seconds: float, now_s: float
) -> tuple[dict[str, str], float]:
    """Return the headers that ask for a pause, and the seconds that they ask for.

    Args:
        options: which form is used.
        seconds: the pause.
        now_s: seconds since the epoch, for dates.
    """
    match options.retry_after_form:
        case "seconds":
            return {"retry-after": f"{seconds:.6g}"}, float(f"{seconds:.6g}")
        case "ms":
            milliseconds = math.ceil(seconds * 1000.0)
            return {"retry-after-ms": str(milliseconds)}, milliseconds / 1000.0
        case "date":
            until = math.ceil(now_s + seconds)
            return {"retry-after": email.utils.formatdate(until, usegmt=True)}, until - now_s
