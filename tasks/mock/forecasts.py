"""Thoughts of the mock: notes, forecasts and settings of a tuned system.

It reads the tables of a prompt (``tasks.rlp.prompts``). The forecast of settings is a normal
distribution around the weighted mean of the shown trials; the weights rise with the share of equal
parameters:

    w_i  = exp(4 s_i - 4)             s_i, share of the parameters that agree with the setting
    mean = (1/4 + sum w_i r_i) / (1/2 + sum w_i)
    sd^2 = .05^2 + (sum w_i (r_i - mean)^2 + .2^2) / (1 + sum w_i)

Its proposed settings are the best trial's with one parameter of the second best. The mock knows
nothing else about the system.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_FORECASTS_WANTED: Final = '"forecasts": {trial: [q10, q50, q90]}'
_SETTINGS_WANTED: Final = '"settings": up to '
_NOTES_WANTED: Final = "write notes that help somebody else to predict"
_Z: Final = 1.2816
"""90 % quantile of the standard normal distribution."""


@dataclass(frozen=True, slots=True)
class _Trial:
    """Row of a table."""

    name: str
    params: Mapping[str, str]
    reward: float | None
    """Mean score; ``None`` means not evaluated yet."""


def thought(user: str) -> str | None:
    """Return the reply to a thinking prompt as JSON; ``None`` for other prompts."""
    if _SETTINGS_WANTED not in user:
        return None
    lines = _trials(user)
    seen = sorted((t for t in lines if t.reward is not None), key=lambda t: -(t.reward or 0.0))
    reply: dict[str, Any] = {}
    if '"notes"' in user:
        named = [f"{_listed(t.params)} scored {t.reward:.3f}" for t in (*seen[:1], *seen[-1:])]
        reply["notes"] = f"Best and worst of {len(seen)}: {'; '.join(named)}."
    if _FORECASTS_WANTED in user:
        reply["forecasts"] = {
            t.name: _quantiles(t.params, seen) for t in lines if t.name in _forecast_names(user)
        }
    reply["settings"] = []
    if len(seen) > 1:
        first, second = seen[0].params, seen[1].params
        other = next((n for n in first if second.get(n) not in (first[n], "-")), None)
        mixed = {**first, **({} if other is None else {other: second[other]})}
        values = {name: _value(text) for name, text in mixed.items() if text != "-"}
        reply["settings"] = [{"values": values, "score": _quantiles(mixed, seen)}]
    return json.dumps(reply)


def notes(system: str) -> str | None:
    """Return uninformative notes; ``None`` if the request asks for no notes."""
    if _NOTES_WANTED not in system.lower():
        return None
    return "Nothing was measured: expect the middle of what was seen before."


def _quantiles(params: Mapping[str, str], seen: Sequence[_Trial]) -> list[float]:
    weighted = [
        (math.exp(4.0 * _agreement(params, trial.params) - 4.0), trial.reward or 0.0)
        for trial in seen
    ]
    total = sum(w for w, _ in weighted)
    mean = (0.25 + sum(w * r for w, r in weighted)) / (0.5 + total)
    spread = sum(w * (r - mean) ** 2 for w, r in weighted) + 0.2**2
    sd = math.sqrt(0.05**2 + spread / (1.0 + total))
    return [round(mean + z * sd, 4) for z in (-_Z, 0.0, _Z)]


def _agreement(params: Mapping[str, str], other: Mapping[str, str]) -> float:
    """Return the similarity of two settings in [0, 1]: the mean over the other's parameters."""
    if not other:
        return 0.0
    return sum(_alike(params.get(name), value) for name, value in other.items()) / len(other)


def _alike(value: str | None, other: str) -> float:
    if value is None or value == other:
        return float(value is not None)
    try:
        a, b = float(value), float(other)
    except ValueError:
        return 0.0
    return max(0.0, 1.0 - abs(a - b) / max(abs(a), abs(b), 1e-9))


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _tables(text: str) -> list[list[list[str]]]:
    """Return the tables of a prompt as rows of fields, the header first."""
    tables: list[list[list[str]]] = []
    is_inside = False
    for line in text.splitlines():
        fields = line.split("|")
        if line.startswith("trial|"):
            tables.append([fields])
        elif is_inside and "|" in line:
            tables[-1].append(fields)
        is_inside = line.startswith("trial|") or (is_inside and "|" in line)
    return tables


def _trials(text: str) -> list[_Trial]:
    trials = []
    for header, *rows in _tables(text):
        begin = 5 if "mean score" in header else 2
        for fields in rows:
            reward = float(fields[2]) if begin == 5 else None
            params = dict(zip(header[begin:], fields[begin:], strict=False))
            trials.append(_Trial(fields[0], params, reward))
    return trials


def _forecast_names(text: str) -> set[str]:
    return {
        row[0] for header, *rows in _tables(text) if "mean score" not in header for row in rows
    }


def _listed(params: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
