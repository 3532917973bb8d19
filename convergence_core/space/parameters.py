"""Parameters of the search space: their values, and the place of each on [0, 1].

Every value has one canonical form, so equal points have equal ids. Numbers are clipped to their
bounds and snapped to the steps counted from ``min``. They are rounded to a resolution far below
any effect (1e-10 of the range; 10 significant digits on a log scale), which also makes
``from_unit(to_unit(value)) == value`` exact. Rounding neither changes nor exceeds a bound. Values
that round like the default become the default.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, TypeAlias

import numpy as np

from convergence_core.records import ParamValue, same_value

_SIGNIFICANT = 10
_MAX_LEVELS = 2**50
_TIDY = 4
"""Decimal digits of sampled floats: 0.7123 rather than 0.7123456789."""
LONGEST_SHOWN = 40
"""Maximum characters of a choice in a label."""

When: TypeAlias = tuple[tuple[str, tuple[ParamValue, ...]], ...]
"""Conditions, all of which must hold: (parameter, allowed values)."""


def same_params(a: Mapping[str, ParamValue], b: Mapping[str, ParamValue]) -> bool:
    """Return whether two configurations have the same parameters with the same values."""
    return a.keys() == b.keys() and all(same_value(a[name], b[name]) for name in a)


def _as_number(value: object) -> int | float:
    if isinstance(value, bool | int | float) and math.isfinite(value):
        return value
    raise ValueError(f"must be a finite number, but got {str(value)[:40]!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """Real number in [min, max], on a linear or log scale, continuous or in steps from ``min``."""

    min: float
    max: float
    log: bool = False
    step: float | None = None
    default: float | None = None
    when: When = ()
    kind: Literal["float"] = "float"

    @property
    def n_values(self) -> int | None:
        """Number of values; ``None`` if continuous."""
        if self.step is None:
            return 1 if self.min == self.max else None
        return int((_exact(self.max) - _exact(self.min)) / _exact(self.step)) + 1

    def value_at(self, index: int) -> float:
        """Return ``min + index * step`` in decimal arithmetic: 0.3, not 0.30000000000000004."""
        if self.step is None:
            return self._bounded(self.min)
        return self._bounded(float(_exact(self.min) + index * _exact(self.step)))

    def canonical(self, value: object) -> float:
        """Return the value clipped, snapped to the steps, and rounded to the resolution."""
        number = self._bounded(float(_as_number(value)))
        n_values = self.n_values
        if n_values is not None:
            steps = 0 if self.step is None else round((number - self.min) / self.step)
            return self.value_at(min(steps, n_values - 1))
        rounded = self._rounded(number)
        is_bound = number in (self.min, self.max)
        if self.default is None or is_bound or rounded != self._rounded(self.default):
            return rounded
        return self._bounded(self.default)

    def problem(self, value: object) -> str | None:
        """Return the violated rule on type, bounds or steps; ``None`` if the value is valid."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "must be a number"
        if not self.min <= value <= self.max:
            return f"must lie in [{self.min:g}, {self.max:g}]"
        if self.step is not None and abs(self.canonical(value) - value) > 1e-6 * self.step:
            return f"must be {self.min:g} plus a multiple of {self.step:g}"
        return None

    def to_unit(self, value: ParamValue) -> float:
        """Return the place of a value on the scale; the middle if it is the only value."""
        number = float(value)
        if self.min == self.max:
            return 0.5
        if self.log:
            low, high = math.log(self.min), math.log(self.max)
            unit = (math.log(number) - low) / (high - low)
        else:
            unit = (number - self.min) / (self.max - self.min)
        return min(1.0, max(0.0, unit))

    def from_unit(self, unit: float) -> float:
        """Return the value at a place on the scale."""
        return self.canonical(self._raw(unit))

    def sample(self, rng: np.random.Generator) -> float:
        """Draw uniformly on the scale, with four digits of the range."""
        n_values = self.n_values
        if n_values is not None and not self.log:
            return self.value_at(int(rng.integers(n_values)))
        return self.tidy(self._raw(rng.random()))

    def tidy(self, number: float) -> float:
        """Return the nearest value with four digits of the range."""
        if self.step is None:
            digits = self._digits(_TIDY)
            number = float(f"{number:.{_TIDY}g}") if self.log else round(number, digits)
        return self.canonical(number)

    def show(self, value: ParamValue) -> str:
        """Return the value with four significant digits."""
        return f"{float(value):.4g}"

    def _raw(self, unit: float) -> float:
        unit = min(1.0, max(0.0, float(unit)))
        if unit == 1.0:
            return self.max
        if self.log:
            low, high = math.log(self.min), math.log(self.max)
            return math.exp(low + unit * (high - low))
        return self.min + unit * (self.max - self.min)

    def _rounded(self, number: float) -> float:
        if self.log:
            return self._bounded(float(f"{number:.{_SIGNIFICANT}g}"))
        return self._bounded(round(number, self._digits(_SIGNIFICANT)))

    def _bounded(self, number: float) -> float:
        """Return the clipped number; adding 0.0 turns -0.0 into 0.0."""
        return float(min(self.max, max(self.min, number))) + 0.0

    def _digits(self, decades: int) -> int:
        """Return the decimal place that resolves the range to ``decades`` digits."""
        span = self.max - self.min
        finest = max(span * 10.0**-decades, 16 * math.ulp(max(abs(self.min), abs(self.max))))
        return -math.ceil(math.log10(finest))


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """Integer in [min, max], on a linear or log scale, in steps from ``min``."""

    min: int
    max: int
    log: bool = False
    step: int = 1
    default: int | None = None
    when: When = ()
    kind: Literal["int"] = "int"

    def __post_init__(self) -> None:
        """Coarsen ranges with more values than floats can distinguish."""
        n_values = (self.max - self.min) // self.step + 1
        if not self.log and n_values > _MAX_LEVELS:
            object.__setattr__(self, "step", self.step * -(-n_values // 2**40))
        if self.log and self.step > 1 and self.max > 10**_SIGNIFICANT:
            n_steps = -(-self.max // (10**_SIGNIFICANT * self.step))
            object.__setattr__(self, "step", self.step * n_steps)

    @property
    def n_values(self) -> int:
        """Number of values."""
        return (self.max - self.min) // self.step + 1

    def value_at(self, index: int) -> int:
        """Return ``min + index * step``."""
        return self.min + index * self.step

    def canonical(self, value: object) -> int:
        """Return the value clipped and snapped to the steps."""
        number = self._rounded(_as_number(value))
        is_bound = value in (self.min, self.max)
        if self.default is not None and not is_bound and number == self._rounded(self.default):
            number = self.default
        steps = (2 * (number - self.min) + self.step) // (2 * self.step)
        return self.value_at(min(self.n_values - 1, steps))

    def _rounded(self, number: float) -> int:
        if self.log and self.step == 1 and number > 10**_SIGNIFICANT:
            number = int(float(f"{number:.{_SIGNIFICANT}g}"))
        return min(self.max, max(self.min, round(number)))

    def problem(self, value: object) -> str | None:
        """Return the violated rule on type, bounds or steps; ``None`` if the value is valid."""
        if isinstance(value, bool) or not isinstance(value, int | float) or value % 1 != 0:
            return "must be a whole number"
        if not self.min <= value <= self.max:
            return f"must lie in [{self.min}, {self.max}]"
        if (int(value) - self.min) % self.step:
            return f"must be {self.min} plus a multiple of {self.step}"
        return None

    def to_unit(self, value: ParamValue) -> float:
        """Return the place of a value on the scale; the middle if it is the only value."""
        number = int(value)
        if self.min == self.max:
            return 0.5
        if self.log:
            return math.log(number / self.min) / math.log(self.max / self.min)
        return (number - self.min) / (self.max - self.min)

    def from_unit(self, unit: float) -> int:
        """Return the value nearest to a place on the scale."""
        unit = min(1.0, max(0.0, float(unit)))
        if self.log:
            return self.canonical(self.min * math.exp(unit * math.log(self.max / self.min)))
        return self.canonical(self.min + round(unit * (self.max - self.min)))

    def sample(self, rng: np.random.Generator) -> int:
        """Draw uniformly on the scale; each bound is as likely as its neighbours."""
        if not self.log:
            return self.value_at(int(rng.integers(self.n_values)))
        low, high = math.log(self.min - 0.5), math.log(self.max + 0.5)
        return self.canonical(math.exp(low + rng.random() * (high - low)))

    def show(self, value: ParamValue) -> str:
        """Return the value's digits."""
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of several values: categories, a boolean, or text variants.

    Each value has a bin on [0, 1]. A parameter with conditions has an extra bin for inactive
    points.
    """

    kind: Literal["categorical", "boolean", "text"]
    choices: tuple[ParamValue, ...]
    names: tuple[str, ...] = ()
    """Display names of the values; for texts, as written in the configuration."""
    default: ParamValue | None = None
    when: When = ()
    _places: Mapping[tuple[bool, object], int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject repeated choices, for example two variant files with the same text."""
        places = {(isinstance(choice, bool), choice): i for i, choice in enumerate(self.choices)}
        object.__setattr__(self, "_places", places)
        if len(places) < self.n_values:
            raise ValueError("has two choices that are the same value")

    @property
    def n_values(self) -> int:
        """Number of choices."""
        return len(self.choices)

    @property
    def n_bins(self) -> int:
        """Number of choices, plus one if the parameter can be inactive."""
        return self.n_values + bool(self.when)

    def value_at(self, index: int) -> ParamValue:
        """Return the choice at an index."""
        return self.choices[index]

    def index(self, value: object) -> int:
        """Return the index of a choice, by value and type, else by value, else by name.

        Raises:
            ValueError: The value is not a choice.
        """
        if isinstance(value, bool | int | float | str):
            is_bool = isinstance(value, bool)
            for key in ((is_bool, value), (not is_bool, value)):
                if key in self._places:
                    return self._places[key]
            if value in self.names:
                return self.names.index(str(value))
        raise ValueError(f"must be one of its choices, but got {str(value)[:40]!r}")

    def canonical(self, value: object) -> ParamValue:
        """Return the choice as written in the configuration."""
        return self.choices[self.index(value)]

    def problem(self, value: object) -> str | None:
        """Return the violated rule; ``None`` if the value is a choice."""
        is_scalar = isinstance(value, bool | int | float | str)
        if is_scalar and (isinstance(value, bool), value) in self._places:
            return None
        shown = ", ".join(self.show(choice) for choice in self.choices[:8])
        more = ", …" if self.n_values > 8 else ""
        return f"must be one of {shown}{more}"

    def to_unit(self, value: ParamValue) -> float:
        """Return the middle of the choice's bin."""
        return (self.index(value) + 0.5) / self.n_bins

    def from_unit(self, unit: float) -> ParamValue:
        """Return the choice whose bin contains a place; the last choice for the inactive bin."""
        unit = min(1.0, max(0.0, float(unit)))
        return self.choices[min(self.n_values - 1, int(unit * self.n_bins))]

    def sample(self, rng: np.random.Generator) -> ParamValue:
        """Draw a choice."""
        return self.choices[int(rng.integers(self.n_values))]

    def show(self, value: ParamValue) -> str:
        """Return a short label; a variant's file stem, or ``#2`` for the second inline text.

        A long choice is shortened and numbered, so that labels stay distinct.
        """
        index = self.index(value)
        if self.kind == "boolean":
            return str(value).lower()
        if self.kind == "text":
            return self._variant(index)
        text = _plain(self.choices[index])
        alike = [choice for choice in self.choices if _plain(choice) == text]
        if len(alike) > 1 and isinstance(self.choices[index], str):
            is_text = all(isinstance(choice, str) for choice in alike)
            text = f"{text} #{index + 1}" if is_text else f'"{text}"'
        return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…#{index + 1}"

    def spelling(self, value: ParamValue) -> ParamValue:
        """Return a value as spelled in the configuration: a text's variant, else the value."""
        return self.names[self.index(value)] if self.names else value

    def _variant(self, index: int) -> str:
        name = self.names[index]
        if name == self.choices[index]:
            return f"#{index + 1}"
        stems = [_stem(other) for other in self.names]
        return _stem(name) if stems.count(_stem(name)) == 1 else name


Parameter: TypeAlias = Float | Integer | Choice


def _plain(choice: ParamValue) -> str:
    return str(choice).lower() if isinstance(choice, bool) else " ".join(str(choice).split())


def _stem(path: str) -> str:
    """Return the last part of a path without its extension."""
    last = path.replace("\\", "/").rsplit("/", 1)[-1]
    return last.rsplit(".", 1)[0] or last


def _exact(number: float) -> Decimal:
    """Return the number as written, for example exactly 0.1."""
    return Decimal(repr(float(number)))
