"""Games about the search: predicted rewards (G1), proposed regions (G2).

* Predict: an explorer writes a thought and forecasts the reward of each of m candidates over ten bins;
  then they are evaluated. Score: mean information gain over the baseline's forecasts, in nats
  (``convergence_core.rlp.gain``). Unreadable forecasts score log .02, the worst there is.
* Explore: an explorer proposes a region; two points of it and two of the base policy are evaluated.
  Score: the difference of their mean rewards, in [-1, 1]; an unreadable region scores -1. A region that
  is the whole space scores 0 on average.

An evaluator that cannot measure leaves the play void.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns, void
from convergence_core.games.replies import forecasts_of, numbers_of, object_of
from convergence_core.ports import Ask
from convergence_core.records import Json, Params, canonical_json
from convergence_core.rlp.bins import N_BINS
from convergence_core.rlp.gain import FLOOR, information_gain
from convergence_core.rlp.regions import draw_points, proposal_of
from convergence_core.space import Space

N_POINTS: Final = 2
"""Points of the region, and of the base policy."""
NOT_MEASURED: Final = "the evaluator measured nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastItem:
    """What is known before m candidates are evaluated."""

    history: str
    """Trials so far, as the explorer reads them."""
    candidates: tuple[Params, ...]
    """To be evaluated, (m,)."""
    baseline: tuple[tuple[float, ...], ...]
    """Forecasts without a thought, (m, N_BINS), all above 0, each row adding up to 1."""


@dataclass(frozen=True, slots=True)
class PredictGame:
    """G1: a thought and its forecasts, for their information gain.

    Raises:
        ValueError: there is no item, or a baseline has another shape or a bin of 0.
    """

    items: tuple[ForecastItem, ...]
    id: ClassVar[str] = "predict"
    version: ClassVar[int] = 1
    roles: ClassVar[tuple[str, ...]] = ("explorer", "evaluator")
    cost: ClassVar[Mapping[str, int]] = {"explorer": 1, "evaluator": 1}
    feeds: ClassVar[Feed] = "thoughts"
    grounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for one in self.items:
            shape = np.array(one.baseline, np.float64)
            if shape.shape != (len(one.candidates), N_BINS) or not (shape > 0).all():
                raise ValueError(
                    f"`baseline` must have {N_BINS} probabilities above 0 for each candidate"
                )
        if not self.items:
            raise ValueError("`items` must hold an item at least")

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Ask for the forecasts, then for the bins that came; facts: the baseline."""
        item = self.items[int(rng.integers(len(self.items)))]
        listed: list[Json] = [dict(one) for one in item.candidates]
        yield Ask(
            role="explorer",
            text=(
                f"{item.history}\n\nThese configurations are evaluated next, in this order:\n"
                f"{canonical_json(listed)}\nWrite down what you expect and why, then forecast the "
                f"reward of each over {N_BINS} equal bins from lowest to highest. Reply with JSON: "
                '{"thought": "...", "forecast": [[ten weights], ...]}.'
            ),
        )
        yield Ask(role="evaluator", text=canonical_json({"bins": listed}))
        return {"baseline": [list(row) for row in item.baseline]}

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return the mean information gain, in nats, at least log .02."""
        baseline = np.array(facts["baseline"], np.float64)  # (m, N_BINS)
        measured = numbers_of(turns[1].reply, len(baseline), 0, N_BINS - 1)
        if measured is None:
            return void(NOT_MEASURED)
        said = forecasts_of((object_of(turns[0].reply) or {}).get("forecast"), len(baseline))
        if said is None:
            return Scores(by_role={"explorer": FLOOR}, reason="the forecasts cannot be read")
        rows = zip(said, baseline, measured, strict=True)
        gains = [information_gain(p, q, int(b)) for p, q, b in rows]
        return Scores(by_role={"explorer": float(np.mean(gains))})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExploreGame:
    """G2: a region of the space, for the reward of points inside over those of the base policy."""

    space: Space
    history: str
    """Trials so far, as the explorer reads them."""
    base: Callable[[np.random.Generator], Params] | None = None
    """Draws what would be tried without the region; ``None``: uniform over the space."""
    id: ClassVar[str] = "explore"
    version: ClassVar[int] = 1
    roles: ClassVar[tuple[str, ...]] = ("explorer", "evaluator")
    cost: ClassVar[Mapping[str, int]] = {"explorer": 1, "evaluator": 1}
    feeds: ClassVar[Feed] = "candidates"
    grounded: ClassVar[bool] = True

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Ask for a region, then for the rewards of its points and of the base policy's.

        Parameters that the region does not name are as in a draw of the base policy. Facts: whether
        the region could be read.
        """
        base = self.base or self.space.sample
        reply = yield Ask(
            role="explorer",
            text=(
                f"{self.history}\n\nPropose where the best configurations lie. Reply with JSON: "
                '{"regions": [{"parameter": [low, high], "other": ["value", ...]}]}.'
            ),
        )
        regions = proposal_of(reply, self.space).regions[:1]
        inside: list[Params] = []
        for _ in range(N_POINTS if regions else 0):
            inside += draw_points(regions, self.space, base(rng), 1, rng)
        if len(inside) < N_POINTS:
            return {"is_readable": False}
        drawn: list[Json] = [dict(one) for one in (*inside, *(base(rng) for _ in range(N_POINTS)))]
        yield Ask(role="evaluator", text=canonical_json({"rewards": drawn}))
        return {"is_readable": True}

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return the mean reward inside less that of the base policy, in [-1, 1]."""
        if not facts["is_readable"]:
            return Scores(by_role={"explorer": -1.0}, reason="it proposed no region of the space")
        rewards = numbers_of(turns[1].reply, 2 * N_POINTS, 0.0, 1.0)
        if rewards is None:
            return void(NOT_MEASURED)
        inside, outside = rewards[:N_POINTS], rewards[N_POINTS:]
        return Scores(by_role={"explorer": float(np.mean(inside) - np.mean(outside))})
