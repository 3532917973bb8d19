"""Opponents by name."""

from collections.abc import Callable, Mapping
from functools import partial

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.opponents.base import CellOpponent, PointOpponent, Setup
from benchmarks.optimizer.opponents.baselines import RandomSearch, SequentialHalving
from benchmarks.optimizer.opponents.optuna_samplers import (
    OptunaOpponent,
    PrunedTpe,
    make_hyperband,
    make_seeded,
    make_tpe,
)
from benchmarks.optimizer.opponents.ours import make_ours
from benchmarks.optimizer.opponents.remote import Hebo, Smac
from benchmarks.optimizer.spaces import Space, real

AnyOpponent = PointOpponent | CellOpponent


OPPONENTS: Mapping[str, Callable[[Setup], AnyOpponent]] = {
    "random": RandomSearch,
    "tpe": partial(OptunaOpponent, make_tpe),
    "cmaes": partial(OptunaOpponent, partial(make_seeded, "CmaEsSampler")),
    "gp": partial(OptunaOpponent, partial(make_seeded, "GPSampler")),
    "halving": SequentialHalving,
    "median": partial(PrunedTpe, lambda _: need("optuna").pruners.MedianPruner()),
    "hyperband": partial(PrunedTpe, make_hyperband),
    "hebo": Hebo,
    "smac": Smac,
}
"""All opponents except ``ours``, which takes settings."""
ONLY_WITH_CASES = frozenset({"halving", "median", "hyperband"})


def runs_on(name: str, *, has_cases: bool) -> bool:
    """Return whether an opponent supports a task."""
    return has_cases or name not in ONLY_WITH_CASES


def check(name: str) -> None:
    """Check a name and its settings before a long run.

    Raises:
        ValueError: If the name, or a setting of ``ours``, is unknown.
    """
    base, _, settings = name.partition(":")
    if base == "ours":
        space = Space([real("x", 0.0, 1.0)])
        make_ours(Setup(space=space, seed=0, batch=20, budget=20), settings)
    elif name not in OPPONENTS:
        raise ValueError(f"`{name}` is no opponent: use ours, {', '.join(sorted(OPPONENTS))}")


def make_opponent(name: str, setup: Setup) -> AnyOpponent:
    """Return an opponent at the start of a run.

    Raises:
        ValueError: If a setting of ``ours`` is unknown.
        KeyError: If the name is unknown; see ``check``.
    """
    base, _, settings = name.partition(":")
    return make_ours(setup, settings) if base == "ours" else OPPONENTS[name](setup)
