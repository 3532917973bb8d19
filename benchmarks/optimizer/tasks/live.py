"""scikit-learn models fitted live, with noise from random splits and model seeds."""

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.optimizer.imports import need
from benchmarks.optimizer.spaces import (
    Key,
    Parameter,
    Point,
    Space,
    Value,
    categorical,
    integer,
    real,
)
from benchmarks.optimizer.tasks.base import Task

N_TRUE_SPLITS = 30
"""Number of splits for a true value; evaluations use others."""
_SPLIT_SEEDS = (10**6, 2**31)
_MAX_ROWS = 500
"""Number of rows used from ``digits``."""


def _if_model(parameter: Parameter, *models: Value) -> Parameter:
    return replace(parameter, parent="model", parent_values=models)


SPACES: Mapping[str, tuple[Parameter, ...]] = {
    "DT": (
        integer("max_depth", 1, 15),
        real("min_samples_split", 0.01, 0.99),
        real("min_samples_leaf", 0.01, 0.49),
        real("min_weight_fraction_leaf", 0.01, 0.49),
        real("max_features", 0.01, 0.99),
        real("min_impurity_decrease", 0.0, 0.5),
    ),
    # choice of the model together with its parameters
    "CASH": (
        categorical("model", "SVM", "DT", "kNN", "logreg"),
        categorical("scale", "none", "standard"),
        _if_model(real("C", 1e-2, 1e3, log=True), "SVM", "logreg"),
        _if_model(real("gamma", 1e-5, 1.0, log=True), "SVM"),
        _if_model(categorical("kernel", "rbf", "poly", "sigmoid"), "SVM"),
        _if_model(integer("n_neighbors", 1, 25), "kNN"),
        _if_model(integer("p", 1, 4), "kNN"),
        _if_model(integer("max_depth", 1, 15), "DT"),
        _if_model(real("min_samples_leaf", 0.001, 0.2, log=True), "DT"),
        _if_model(categorical("penalty", "l1", "l2"), "logreg"),
    ),
}


class LiveTask(Task):
    """Accuracy of a model fitted on half of the data and tested on the rest."""

    suite = "skl"
    is_true_cheap = False

    def __init__(self, model: str, data_set: str) -> None:
        super().__init__(f"skl:{model}-{data_set}", Space(SPACES[model]))
        self.model, self.data_set = model, data_set
        self._true: dict[Key, float] = {}
        self._rows: tuple[np.ndarray, np.ndarray] | None = None

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the accuracy on one random split with a fresh model seed."""
        return self.accuracy(point, int(rng.integers(*_SPLIT_SEEDS)))

    def true(self, point: Point) -> float:
        """Return the mean accuracy over held-back splits."""
        key = self.space.key(point)
        if key not in self._true:
            accuracies = [self.accuracy(point, seed) for seed in range(N_TRUE_SPLITS)]
            self._true[key] = float(np.mean(accuracies))
        return self._true[key]

    def accuracy(self, point: Point, seed: int) -> float:
        """Fit and test; a model that rejects its parameters scores 0."""
        x, y = self._data()
        order = np.random.default_rng(seed).permutation(len(x))
        half = len(x) // 2
        train, test = order[:half], order[half:]
        settings = dict(point)
        model = str(settings.pop("model", self.model))
        x_train, x_test = x[train], x[test]
        if settings.pop("scale", "none") == "standard":
            mean, sd = x_train.mean(0), x_train.std(0)
            sd[sd == 0] = 1
            x_train, x_test = (x_train - mean) / sd, (x_test - mean) / sd
        classifier = _classifier(model, settings, n=half, seed=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                classifier.fit(x_train, y[train])
            except ValueError:
                return 0.0
            return float((classifier.predict(x_test) == y[test]).mean())

    def _data(self) -> tuple[np.ndarray, np.ndarray]:
        if self._rows is None:
            load = getattr(need("sklearn.datasets"), f"load_{self.data_set}")
            x, y = load(return_X_y=True)
            if self.data_set == "digits":
                kept = np.random.default_rng(0).permutation(len(x))[:_MAX_ROWS]
                x, y = x[kept], y[kept]
            self._rows = x, y
        return self._rows


def _classifier(model: str, settings: dict[str, Value], *, n: int, seed: int) -> Any:
    """Return an unfitted model for ``n`` rows."""
    random_state = seed % 2**31
    if model == "DT":
        tree = need("sklearn.tree").DecisionTreeClassifier
        return tree(random_state=random_state, **settings)
    if model == "SVM":
        return need("sklearn.svm").SVC(max_iter=3000, **settings)
    if model == "kNN":
        return need("sklearn.neighbors").KNeighborsClassifier(**settings)
    return need("sklearn.linear_model").SGDClassifier(
        loss="log_loss",
        penalty=settings["penalty"],
        alpha=1.0 / (float(settings["C"]) * n),
        max_iter=15,
        random_state=random_state,
    )
