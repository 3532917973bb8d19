"""Optuna's samplers with their defaults, and TPE with pruners over test cases."""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.opponents.base import Asked, BestSeen, CellOpponent, Claim, Setup
from benchmarks.optimizer.spaces import Key, Parameter, Point, Value

warnings.filterwarnings("ignore", module="optuna")
CASES_AT_ONCE = 5
"""Cases between calls of a pruner."""


def make_study(sampler: Any, **settings: Any) -> Any:
    """Return a silent study that maximises."""
    optuna = need("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(direction="maximize", sampler=sampler, **settings)


def make_tpe(setup: Setup) -> Any:
    """Return Optuna 5's TPE. Groups make it multivariate on conditional spaces too."""
    return need("optuna").samplers.TPESampler(
        seed=setup.seed, multivariate=True, group=setup.space.is_conditional, constant_liar=True
    )


def make_seeded(name: str, setup: Setup) -> Any:
    """Return the named sampler. `CmaEsSampler` handles only numbers."""
    return getattr(need("optuna").samplers, name)(seed=setup.seed)


class OptunaOpponent(BestSeen):
    """Study that receives values only after a whole batch of asks."""

    def __init__(self, make_sampler: Callable[[Setup], Any], setup: Setup) -> None:
        super().__init__(setup)
        self._study = make_study(make_sampler(setup))
        self._open: dict[Key, list[Any]] = {}

    def ask(self, n: int) -> list[Point]:
        """Return points of ``n`` new trials."""
        points = []
        for _ in range(n):
            trial = self._study.ask()
            points.append(self.setup.space.fill(partial(_suggest, trial)))
            self._open.setdefault(self.setup.space.key(points[-1]), []).append(trial)
        return points

    def tell(self, points: Sequence[Point], values: Sequence[float]) -> None:
        """Report the trials' values."""
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


def make_hyperband(setup: Setup) -> Any:
    """Return Hyperband whose resource is cases."""
    return need("optuna").pruners.HyperbandPruner(CASES_AT_ONCE, setup.n_cases)


class PrunedTpe(CellOpponent):
    """TPE with one trial at a time, each on all cases in one order unless pruned.

    It reports the running mean after every few cases and recommends the best complete trial.
    """

    cells_at_once = CASES_AT_ONCE

    def __init__(self, make_pruner: Callable[[Setup], Any], setup: Setup) -> None:
        super().__init__(setup)
        assert setup.n_cases is not None
        # Hyperband assigns brackets by the study's name, which is random by default.
        name = str(setup.seed)
        self._study = make_study(make_tpe(setup), pruner=make_pruner(setup), study_name=name)
        self._order = tuple(map(int, np.random.default_rng(setup.seed).permutation(setup.n_cases)))
        self._begin()
        self._best = (-1.0, self._point)

    def _begin(self) -> None:
        self._trial, self._rewards = self._study.ask(), list[float]()
        self._point = self.setup.space.fill(partial(_suggest, self._trial))

    def ask_cells(self, n_cells: int) -> list[Asked]:
        """Return the running trial's next cases."""
        n = len(self._rewards)
        return [Asked(point=self._point, cases=self._order[n : n + n_cells])]

    def tell_cells(self, asked: Sequence[Asked], rewards: Sequence[Sequence[float]]) -> None:
        """Report the running mean; end the trial if it is pruned or complete."""
        del asked
        self._rewards += rewards[0]
        mean, n = float(np.mean(self._rewards)), len(self._rewards)
        self._trial.report(mean, n)
        if n == len(self._order):
            self._study.tell(self._trial, mean)
            self._best = max(self._best, (mean, self._point), key=itemgetter(0))
        elif self._trial.should_prune():
            self._study.tell(self._trial, state=need("optuna").trial.TrialState.PRUNED)
        else:
            return
        self._begin()

    def recommend(self) -> Claim:
        """Return the best complete trial."""
        return Claim(point=self._best[1])
