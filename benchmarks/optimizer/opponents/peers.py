"""Peers that run in separate environments; only ``server`` imports them."""

import random
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.spaces import Parameter, Point, Space, Value


class Peer(Protocol):
    """Interface of a peer for the server. Values are maximised."""

    def ask(self, n: int) -> list[Point]:
        """Return points."""
        ...

    def tell(self, values: Sequence[float]) -> None:
        """Learn the values of the last points returned by ``ask``."""
        ...

    def recommend(self) -> Point | None:
        """Return the peer's choice; ``None`` means its highest observation."""
        ...


class SmacPeer:
    """SMAC's hyper-parameter optimization facade, set for a noisy objective."""

    def __init__(self, space: Space, *, seed: int, batch: int, budget: int) -> None:
        warnings.simplefilter("ignore")
        del batch
        cs, smac = need("ConfigSpace"), need("smac")
        described = cs.ConfigurationSpace(seed=seed)
        parameters = {p.name: _hyperparameter(cs, p) for p in space.parameters}
        for p in space.parameters:
            described.add(parameters[p.name])
        for p in space.parameters:
            if p.parent is not None:
                described.add(
                    cs.InCondition(parameters[p.name], parameters[p.parent], list(p.parent_values))
                )
        self._space = space
        self._folder = tempfile.TemporaryDirectory()
        scenario = smac.Scenario(
            described,
            deterministic=False,
            n_trials=budget,
            seed=seed,
            output_directory=Path(self._folder.name),
        )
        self._smac = smac.HyperparameterOptimizationFacade(
            scenario, _never_called, logging_level=False, overwrite=True
        )
        self._value_of = need("smac.runhistory.dataclasses").TrialValue
        self._open: list[Any] = []

    def ask(self, n: int) -> list[Point]:
        """Ask for points one by one."""
        self._open = [self._smac.ask() for _ in range(n)]
        return [self._point(info.config) for info in self._open]

    def tell(self, values: Sequence[float]) -> None:
        """Tell costs, which are minimised."""
        for info, value in zip(self._open, values, strict=True):
            self._smac.tell(info, self._value_of(cost=-value), save=False)

    def recommend(self) -> Point | None:
        """Return the incumbent."""
        incumbent = self._smac.intensifier.get_incumbent()
        return None if incumbent is None else self._point(incumbent)

    def _point(self, configuration: Any) -> Point:
        raw = dict(configuration)
        return self._space.fill(lambda p: p.cast(_plain(p, raw[p.name])))


def _never_called(config: Any, seed: int = 0) -> float:  # noqa: ARG001 - SMAC reads the signature
    raise RuntimeError("the target is asked and told from outside")


def _hyperparameter(cs: Any, p: Parameter) -> Any:
    if p.kind == "float":
        return cs.Float(p.name, (p.low, p.high), log=p.log)
    if p.kind == "int":
        return cs.Integer(p.name, (p.low, p.high), log=p.log)
    if p.kind == "ordered":
        return cs.OrdinalHyperparameter(p.name, [f"o{i}" for i in range(len(p.choices))])
    return cs.Categorical(p.name, list(p.choices))


def _plain(p: Parameter, value: Any) -> Value:
    """Return a value in the space's type."""
    if p.kind == "ordered":
        return p.choices[int(value[1:])]
    if p.kind == "categorical" and isinstance(p.choices[0], str):
        return str(value)
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


class HeboPeer:
    """HEBO. It does not support conditions, so we drop inactive parameters."""

    def __init__(self, space: Space, *, seed: int, batch: int, budget: int) -> None:
        warnings.simplefilter("ignore")
        del batch, budget
        need("pymoo.config").Config.warnings["not_compiled"] = False
        # HEBO uses the global generators.
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        need("torch").manual_seed(seed)
        described = need("hebo.design_space.design_space").DesignSpace()
        self._hebo = need("hebo.optimizers.hebo").HEBO(
            described.parse([_dimension(p) for p in space.parameters]), scramble_seed=seed
        )
        self._space = space
        self._open: Any = None

    def ask(self, n: int) -> list[Point]:
        """Ask for a whole batch."""
        self._open = self._hebo.suggest(n_suggestions=n)
        points = []
        for _, row in self._open.iterrows():
            raw = {
                p.name: p.choices[int(row[p.name])] if p.kind == "ordered" else row[p.name]
                for p in self._space.parameters
            }
            points.append(self._space.canonical(raw))
        return points

    def tell(self, values: Sequence[float]) -> None:
        """Tell costs, which are minimised."""
        self._hebo.observe(self._open, -np.array(values, dtype=float).reshape(-1, 1))

    def recommend(self) -> Point | None:
        """Return ``None`` for the highest observation, as HEBO's ``best_x`` does."""
        return None


def _dimension(p: Parameter) -> dict[str, Any]:
    if p.kind == "float":
        return {"name": p.name, "type": "pow" if p.log else "num", "lb": p.low, "ub": p.high}
    if p.kind == "int":
        kind = "pow_int" if p.log else "int"
        return {"name": p.name, "type": kind, "lb": p.low, "ub": p.high}
    if p.kind == "ordered":
        return {"name": p.name, "type": "int", "lb": 0, "ub": len(p.choices) - 1}
    return {"name": p.name, "type": "cat", "categories": list(p.choices)}


PEERS: Mapping[str, Callable[..., Peer]] = {"hebo": HeboPeer, "smac": SmacPeer}
