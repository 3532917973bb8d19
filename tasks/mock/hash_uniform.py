"""Uniform and logistic draws as functions of texts, the same in any process."""

import hashlib
import math


def uniform(*parts: object) -> float:
    """Return a number in (0, 1) that depends on the texts of all parts, and on nothing else."""
    text = "\x1f".join(str(part) for part in parts)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:6], "big") + 0.5) / 2.0**48


def logistic(*parts: object) -> float:
    """Return a draw from the standard logistic distribution."""
    u = uniform(*parts)
    return math.log(u / (1.0 - u))
