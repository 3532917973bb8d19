"""Notes and forecasts of the mock, about trials of a tuned system.

Asked for notes, it names the settings of the best and the worst trials that the prompt shows, each with the
reward to expect of its like. Asked for weights, it forecasts: each trial shown is an observation, each expectation
that the notes name is one more, and the forecast of a setting is a normal distribution around their mean,
weighted by how many parameters they share with it.

    w_i  = n_i exp(4 s_i - 4)             s_i, share of the parameters that agree with the setting
    mean = (1/4 + sum w_i r_i) / (1/2 + sum w_i)
    sd^2 = .05^2 + (sum w_i (r_i - mean)^2 + .2^2) / (1 + sum w_i)

It knows nothing of the system beyond these lines, and forecasts as well as they do.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tasks.mock.prompt_text import content_words, sections

_TRIAL: Final = re.compile(r"reward (?P<reward>[\d.]+) over (?P<n>\d+) cells: (?P<params>[^\n]+)")
_MEAN: Final = re.compile(r"(?P<place>[^;:\n]+): (?P<reward>\d\.\d+) \(n=(?P<n>\d+)\)")
_ENDS: Final = re.compile(
    r"tried (?P<low>[\d.e+-]+) \(reward (?P<at_low>\d\.\d+)\) to (?P<high>[\d.e+-]+) "
    r"\(reward (?P<at_high>\d\.\d+)\)"
)
_UNTRIED: Final = re.compile(r"^- (?P<name>[\w.-]+): not tried: (?P<values>.+)$", re.MULTILINE)
_PARAMETER: Final = re.compile(r"^- (?P<name>[\w.-]+)[: ]", re.MULTILINE)
_SETTING: Final = re.compile(r"(?P<name>[\w.-]+)=(?P<value>[^,\n]*)")
_EXPECTED: Final = re.compile(
    r"With (?P<params>[^\n]+?), expect a reward of (?P<reward>\d\.\d+)\."
)
_QUESTION: Final = re.compile(r"^(?P<name>\w+): Next trial: (?P<params>.+?)\.\nIts reward as one digit, "
                           r"in steps of (?P<step>[\d.e-]+): 0 for below (?P<first>-?[\d.e-]+),", re.MULTILINE)  # fmt: skip
_OPTIONS: Final = re.compile(r"^(?P<number>\d+): (?P<text>.+)$", re.MULTILINE)
_N_WEIGHTS: Final = re.compile(r"\"weights\": \[\.\.\.\]\}, (\d+) whole numbers")
_NOTES_WANTED: Final = re.compile(
    r"\bwrite notes that help somebody else to predict\b", re.IGNORECASE
)

N_BINS: Final = 10
N_NAMED: Final = 2
"""Settings that notes name at each end."""
SHRINKAGE: Final = 0.5
"""Share of its distance from the mean that the best or worst of many is expected to keep."""
UNKNOWN: Final = 0.5
"""Reward expected of what no one tried."""
NOTE_WEIGHT: Final = 3.0
"""Observations that an expectation of the notes is worth."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """A reward that was seen, or is expected, of a setting."""

    params: Mapping[str, str]
    reward: float
    n: float


def notes(system: str, user: str) -> str | None:
    """Return notes about the trials that a prompt shows; ``None`` if no notes are asked for."""
    if _NOTES_WANTED.search(system) is None:
        return None
    seen = _trials(user) or _means(user)
    if not seen:
        untried = [
            f"With {match['name']}={value.strip()}, expect a reward of {UNKNOWN:.3f}."
            for match in _UNTRIED.finditer(user)
            for value in match["values"].split(",")[:N_NAMED]
            if value.strip() != "nothing"
        ]
        return "\n".join(
            [*untried, "Nothing was measured of them: that is the middle of all rewards."]
        )
    mean = sum(trial.reward * trial.n for trial in seen) / sum(trial.n for trial in seen)
    ranked = sorted(seen, key=lambda trial: -trial.reward)
    named = [
        *ranked[:N_NAMED],
        *[trial for trial in ranked[-N_NAMED:] if trial not in ranked[:N_NAMED]],
    ]
    lines = [
        f"With {_listed(trial.params)}, expect a reward of {mean + SHRINKAGE * (trial.reward - mean):.3f}."
        for trial in named
    ]
    lines.append(f"Of the others about {mean:.3f}; that is a guess from {len(seen)} lines.")
    return "\n".join(lines)


def weights(user: str) -> dict[str, list[int]] | None:
    """Return the weights of all questions of a prompt; ``None`` if it asks for none."""
    questions = [*_QUESTION.finditer(user)]
    notes_text = sections(user).get("notes", "")
    if questions and "ten weights" in user:
        head = user.split("Trials to predict:", maxsplit=1)[0]
        seen = [*_trials(head), *_expected(notes_text)]
        return {
            question["name"]: _bins(
                _params(question["params"]),
                seen,
                float(question["first"]),
                float(question["step"]),
            )
            for question in questions
        }
    wanted = _N_WEIGHTS.search(user)
    if wanted is None:
        return None
    options = [match["text"] for match in _OPTIONS.finditer(user)][: int(wanted[1])]
    known = set(content_words(notes_text))
    shared = [len(known & set(content_words(option))) for option in options]
    return {"weights": [20 + 15 * min(n, 4) for n in shared]}


def _bins(
    params: Mapping[str, str], seen: Sequence[_Seen], first: float, step: float
) -> list[int]:
    """Return ten weights of one setting, 1 to 100."""
    weighted = [
        (trial.n * math.exp(4.0 * _agreement(params, trial.params) - 4.0), trial.reward)
        for trial in seen
    ]
    total = sum(w for w, _ in weighted)
    mean = (0.25 + sum(w * r for w, r in weighted)) / (0.5 + total)
    spread = sum(w * (r - mean) ** 2 for w, r in weighted) + 0.2**2
    sd = math.sqrt(0.05**2 + spread / (1.0 + total))
    edges = [-math.inf, *(first + k * step for k in range(N_BINS - 1)), math.inf]
    shares = [_below(high, mean, sd) - _below(low, mean, sd) for low, high in pairwise(edges)]
    return [max(1, round(100 * share)) for share in shares]


def _below(x: float, mean: float, sd: float) -> float:
    return 0.5 * (1.0 + math.erf((x - mean) / (sd * math.sqrt(2.0))))


def _agreement(params: Mapping[str, str], other: Mapping[str, str]) -> float:
    """Return how alike two settings are, in [0, 1]: the mean over the parameters of the other."""
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


def _trials(text: str) -> list[_Seen]:
    return [
        _Seen(_params(match["params"]), float(match["reward"]), 1.0)
        for match in _TRIAL.finditer(text)
    ]


def _expected(text: str) -> list[_Seen]:
    return [
        _Seen(_params(match["params"]), float(match["reward"]), NOTE_WEIGHT)
        for match in _EXPECTED.finditer(text)
    ]


def _means(text: str) -> list[_Seen]:
    """Return mean rewards by value, of lines such as ``- model: small: 0.500 (n=3); large: …``."""
    means = []
    for line in text.splitlines():
        parameter = _PARAMETER.match(line)
        if parameter is None:
            continue
        name = parameter["name"]
        means += [
            _Seen({name: match["place"].strip()}, float(match["reward"]), float(match["n"]))
            for match in _MEAN.finditer(line)
        ]
        for match in _ENDS.finditer(line):
            means += [
                _Seen({name: match[end]}, float(match[f"at_{end}"]), 1.0)
                for end in ("low", "high")
            ]
    return means


def _params(text: str) -> dict[str, str]:
    return {match["name"]: match["value"].strip() for match in _SETTING.finditer(text)}


def _listed(params: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items()) or "any setting"
