"""YAHPO Gym: neural surrogates of hundreds of thousands of real tuning runs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.spaces import Parameter, Point, Space, Value
from benchmarks.optimizer.tasks.base import DATA, Task

N_ITEMS = 50
"""Size of the evaluation set that sets the sampling noise of ``noisy`` tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Inputs and outputs of one surrogate, in its order."""

    outputs: tuple[str, ...]
    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    instance: str
    """Parameter that names the data set."""
    fixed: Mapping[str, float]
    """Fidelity parameters at their highest fidelity."""
    target: str
    unit: float = 1.0


_RBV2 = ("acc", "bac", "auc", "brier", "f1", "logloss", "timetrain", "timepredict", "memory")
SCENARIOS: Mapping[str, Scenario] = {
    "rbv2_xgboost": Scenario(
        outputs=_RBV2,
        numbers=(
            "nrounds", "eta", "gamma", "lambda", "alpha", "subsample", "max_depth",
            "min_child_weight", "colsample_bytree", "colsample_bylevel", "rate_drop",
            "skip_drop", "trainsize", "repl",
        ),
        categories=("task_id", "booster", "num.impute.selected.cpo"),
        instance="task_id",
        fixed={"trainsize": 1.0, "repl": 10},
        target="acc",
    ),
    "rbv2_rpart": Scenario(
        outputs=_RBV2,
        numbers=("cp", "maxdepth", "minbucket", "minsplit", "trainsize", "repl"),
        categories=("task_id", "num.impute.selected.cpo"),
        instance="task_id",
        fixed={"trainsize": 1.0, "repl": 10},
        target="acc",
    ),
    "lcbench": Scenario(
        outputs=(
            "time", "val_accuracy", "val_cross_entropy", "val_balanced_accuracy",
            "test_cross_entropy", "test_balanced_accuracy",
        ),
        numbers=(
            "epoch", "batch_size", "learning_rate", "momentum", "weight_decay", "num_layers",
            "max_units", "max_dropout",
        ),
        categories=("OpenML_task_id",),
        instance="OpenML_task_id",
        fixed={"epoch": 52},
        target="val_accuracy",
        unit=100.0,
    ),
}  # fmt: skip


@cache
def _session(scenario: str) -> Any:
    runtime = need("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return runtime.InferenceSession(str(DATA / "yahpo" / scenario / "model.onnx"), options)


def _read(scenario: str, file: str) -> Any:
    return json.loads((DATA / "yahpo" / scenario / file).read_text(encoding="utf-8"))


def _space(name: str) -> Space:
    """Read a search space without the data set and the fidelities."""
    scenario, described = SCENARIOS[name], _read(name, "config_space.json")
    condition = {c["child"]: c for c in described["conditions"]}
    parameters = []
    for h in described["hyperparameters"]:
        if h["name"] == scenario.instance or h["name"] in scenario.fixed:
            continue
        parent: dict[str, Any] = {}
        if h["name"] in condition:
            c = condition[h["name"]]
            values = c["values"] if c["type"] == "IN" else [c["value"]]
            parent = {"parent": c["parent"], "parent_values": tuple(values)}
        if h["type"] == "categorical":
            parameter = Parameter(
                name=h["name"], kind="categorical", choices=tuple(h["choices"]), **parent
            )
        else:
            parameter = Parameter(
                name=h["name"],
                kind="float" if h["type"] == "uniform_float" else "int",
                low=h["lower"],
                high=h["upper"],
                log=bool(h["log"]),
                **parent,
            )
        parameters.append(parameter)
    return Space(sorted(parameters, key=lambda p: p.parent is not None))


class SurrogateTask(Task):
    """One data set of a scenario. The surrogate itself is the truth.

    A noisy task returns a binomial draw of the accuracy, as on ``N_ITEMS`` test items.
    """

    suite = "yahpo"

    def __init__(self, scenario: str, instance: str, *, is_noisy: bool) -> None:
        kind = "N" if is_noisy else "0"
        super().__init__(
            f"yahpo{kind}:{scenario.removeprefix('rbv2_')}-{instance}", _space(scenario)
        )
        self.scenario, self.instance, self.is_noisy = scenario, instance, is_noisy
        self.unit = SCENARIOS[scenario].unit
        self._codes: Mapping[str, Mapping[str, int]] = _read(scenario, "encoding.json")

    def values(self, points: Sequence[Point]) -> np.ndarray:
        """Return the surrogate's predictions, (n_points,)."""
        scenario = SCENARIOS[self.scenario]
        codes, numbers = [], []
        for point in points:
            full: dict[str, Value] = {
                **point, **scenario.fixed, scenario.instance: self.instance
            }  # fmt: skip
            codes.append([self._codes[c][str(full.get(c, "#na#"))] for c in scenario.categories])
            numbers.append([float(full.get(n, 0)) for n in scenario.numbers])
        answer = _session(self.scenario).run(
            None,
            {"x_cat": np.array(codes, np.int32), "x_cont": np.array(numbers, np.float32)},
        )[0]
        column: np.ndarray = answer[:, scenario.outputs.index(scenario.target)].astype(float)
        return column

    def true(self, point: Point) -> float:
        """Return the surrogate's prediction."""
        return float(self.values([point])[0])

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the prediction, or a noisy estimate as from a small test set."""
        value = self.true(point)
        if not self.is_noisy:
            return value
        share = min(1.0, max(0.0, value / self.unit))
        return self.unit * int(rng.binomial(N_ITEMS, share)) / N_ITEMS
