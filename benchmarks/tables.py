"""Rows of Markdown tables, and means and shares with their intervals."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, t as student

ONE_SEED = " (one seed)"


def row(*cells: object) -> str:
    """Return a table row."""
    return f"| {' | '.join(map(str, cells))} |"


def header(*names: str) -> str:
    """Return a table's two header lines."""
    return f"{row(*names)}\n|{'---|' * len(names)}"


def error_of(values: Sequence[float] | np.ndarray) -> float:
    """Return the standard error of a mean; NaN for a single value."""
    n = len(values)
    return float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float, float]:
    """Return a mean with the ends of its 95 % interval (Student's t)."""
    mean = float(np.mean(values))
    half = float(student.ppf(0.975, len(values) - 1)) * error_of(values)
    return mean, mean - half, mean + half


def plus_minus(half: float, form: str) -> str:
    """Return the suffix of a mean: half an interval, or a note that there is none."""
    return ONE_SEED if math.isnan(half) else f" ± {half:{form.strip('+')}}"


def with_error(values: Sequence[float] | np.ndarray, form: str = ".3f") -> str:
    """Return a mean and its standard error."""
    return f"{float(np.mean(values)):{form}}{plus_minus(error_of(values), form)}"


def with_half(values: Sequence[float] | np.ndarray, form: str = ".3f") -> str:
    """Return a mean and half of its 95 % interval."""
    mean, low, _ = interval(values)
    return f"{mean:{form}}{plus_minus(mean - low, form)}"


def with_ends(values: Sequence[float] | np.ndarray, form: str = "+.3f", unit: str = "") -> str:
    """Return a mean and the ends of its 95 % interval."""
    mean, low, high = interval(values)
    ends = ONE_SEED if math.isnan(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{mean:{form}}{unit}{ends}"


def share_ends(n_hits: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Clopper and Pearson)."""
    ends = binomtest(n_hits, n).proportion_ci(method="exact")
    return float(ends.low), float(ends.high)


def append(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Append rows to a CSV file with a header of field names."""
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        if is_new:
            writer.writeheader()
        writer.writerows(rows)
