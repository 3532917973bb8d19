"""Optuna's samplers with their defaults: TPE, NSGA-II and CMA-ES."""

import warnings
from abc import abstractmethod
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.opponents.base import BestSeen, Setup
from benchmarks.optimizer.spaces import Key, Parameter, Point, Value


class OptunaOpponent(BestSeen):
    """A study that is asked a whole batch before it is told."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        optuna = need("optuna")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(
                direction="maximize", sampler=self.make_sampler(optuna.samplers)
            )
        self._open: dict[Key, list[Any]] = {}

    @abstractmethod
    def make_sampler(self, samplers: ModuleType) -> Any:
        """Return the sampler."""

    def ask(self, n: int) -> list[Point]:
        """Return points of ``n`` new trials."""
        points = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(n):
                trial = self._study.ask()
                point = self.setup.space.fill(lambda p, trial=trial: _suggest(trial, p))  # type: ignore[misc]  # binds the loop's trial
                points.append(point)
                self._open.setdefault(self.setup.space.key(point), []).append(trial)
        return points

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Tell the trials."""
        for point, value in zip(points, values, strict=True):
            self._study.tell(self._open[self.setup.space.key(point)].pop(0), value)
        self.note(points, values)


def _suggest(trial: Any, p: Parameter) -> Value:
    value: Value
    if p.kind == "float":
        value = trial.suggest_float(p.name, p.low, p.high, log=p.log)
    elif p.kind == "int":
        value = trial.suggest_int(p.name, p.low, p.high, log=p.log)
    elif p.kind == "ordered":
        value = p.choices[trial.suggest_int(p.name, 0, len(p.choices) - 1)]
    else:
        value = trial.suggest_categorical(p.name, p.choices)
    return value


class Tpe(OptunaOpponent):
    """TPE as Optuna 5 has it by default; groups make it multivariate on conditional spaces too."""

    def make_sampler(self, samplers: ModuleType) -> Any:
        """Return a multivariate TPE whose batches spread by the constant liar."""
        return samplers.TPESampler(
            seed=self.setup.seed,
            multivariate=True,
            group=self.setup.space.is_conditional,
            constant_liar=True,
            warn_independent_sampling=False,
        )


class CmaEs(OptunaOpponent):
    """The covariance matrix adaptation of the `cmaes` package, which knows numbers only."""

    def make_sampler(self, samplers: ModuleType) -> Any:
        """Return CMA-ES."""
        return samplers.CmaEsSampler(seed=self.setup.seed, warn_independent_sampling=False)
