"""Planted worlds for language games: a reward over two parameters, pairs with a label."""

import json

import numpy as np

from convergence_core.games.search_games import ForecastItem
from convergence_core.judges.texts import words_of
from convergence_core.ports import Ask
from convergence_core.records import Params
from convergence_core.rlp.bins import N_BINS, TENTHS
from convergence_core.space import Space
from convergence_core.space.parameters import Choice, Float

SPACE = Space(
    parameters={
        "model": Choice(kind="categorical", choices=("ant", "bee")),
        "t": Float(min=0.0, max=1.0),
    }
)
BEST = '{"regions": [{"model": ["bee"], "t": [0.6, 0.8]}]}'
EVERYWHERE = '{"regions": [{"model": ["ant", "bee"], "t": [0.0, 1.0]}]}'


def reward(params: Params) -> float:
    """The best is bee at .7."""
    return (0.5 if params["model"] == "bee" else 0.2) + 0.45 * (1 - abs(float(params["t"]) - 0.7))


class Evaluator:
    """Measures rewards and bins with a little noise."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        asked = json.loads(ask.text)
        (kind,) = asked
        seen = [min(1.0, max(0.0, reward(p) + rng.normal(0, 0.03))) for p in asked[kind]]
        return json.dumps(seen if kind == "rewards" else [TENTHS.bin_of(one) for one in seen])


def forecast(params: Params, sharpness: float = 4.0) -> list[float]:
    """Weights that know the reward."""
    gaps = np.abs(np.arange(N_BINS) - TENTHS.bin_of(reward(params)))
    return [float(w) for w in np.exp(-sharpness * gaps / 2)]


def items(n: int, rng: np.random.Generator) -> tuple[ForecastItem, ...]:
    """Candidates in groups of four, with the base rate of bins as the baseline."""
    drawn = [[SPACE.sample(rng) for _ in range(4)] for _ in range(n)]
    counts = np.ones(N_BINS)
    for group in drawn:
        for params in group:
            counts[TENTHS.bin_of(reward(params))] += 1
    base = tuple(float(p) for p in counts / counts.sum())
    return tuple(
        ForecastItem(history="Nothing yet.", candidates=tuple(group), baseline=(base,) * 4)
        for group in drawn
    )


class Explorer:
    """Forecasts what it knows; shuffled: in another candidate's place."""

    def __init__(self, *, shuffled: bool = False) -> None:
        self.shuffled = shuffled

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        lines = ask.text.split("\n")
        listed = json.loads(next(line for line in lines if line.startswith("[")))
        said = [forecast(params) for params in listed]
        if self.shuffled:
            said = said[1:] + said[:1]
        return json.dumps({"thought": "bee at .7", "forecast": said})


class Author:
    """Prompts of random words."""

    WORDS = words_of(
        "parcel refund order late broken colour size invoice address gift card return lost"
    )

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        return " ".join(rng.choice(self.WORDS, 8)) + "?"
