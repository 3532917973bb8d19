"""Spearman's rank correlation, ties at their mean rank (Spearman 1904)."""

import numpy as np


def spearman(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return rho of each row, (..., n) and (..., n) -> (...,); NaN where a side is constant."""
    from scipy.stats import rankdata  # noqa: PLC0415 - takes most of a second to import

    x, y = (rankdata(side, axis=-1) for side in (a, b))
    x = x - x.mean(axis=-1, keepdims=True)
    y = y - y.mean(axis=-1, keepdims=True)
    norms = np.sqrt(np.sum(x * x, axis=-1) * np.sum(y * y, axis=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        rho = np.clip(np.sum(x * y, axis=-1) / norms, -1.0, 1.0)
    return np.asarray(np.where(norms > 1e-9, rho, np.nan))
