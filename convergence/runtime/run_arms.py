"""Arms of a system that is configured by what was optimized.

The best candidates of the latest finished run of ``api.name``, in the order of its leaderboard; before
there is one, points of the search space, the defaults first where all parameters have one.
"""

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from convergence.types import ConvergenceConfig
from convergence_core.records import canonical_json
from tasks.inputs.loader import load_mapping
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.store import ParquetStore
from tasks.store.layout import store_root

N_ARMS: Final = 4
"""Arms that are offered."""


def runtime_config(system: str, config: ConvergenceConfig, folder: Path) -> RuntimeConfig:
    """Return settings whose arms are those of an optimization.

    Args:
        system: name of the system at run time.
        config: what was optimized, or will be.
        folder: of the store that holds its runs.

    Raises:
        ConfigurationError: the configuration is wrong.
        StoreError: the store cannot be read.
    """
    points = _of_runs(config.api.name, folder) or _of_space(config)
    return RuntimeConfig(
        system=system, default_arms=tuple(RuntimeArm(params=point) for point in points)
    )


def _of_runs(name: str, folder: Path) -> list[dict[str, Any]]:
    """Return the best candidates of the latest finished run; empty: there is none."""
    if not store_root(folder).is_dir():
        return []
    store = ParquetStore(folder)
    finished = [run for run in store.runs(name) if run.status == "done"]
    if not finished:
        return []
    rows = store.rows(
        "SELECT params_json FROM leaderboard WHERE run_id = $run AND rank <= $n ORDER BY rank",
        {"run": finished[0].run_id, "n": N_ARMS},
    )
    return [json.loads(str(row["params_json"])) for row in rows]


def _of_space(config: ConvergenceConfig) -> list[dict[str, Any]]:
    """Return different points of the search space, the same for the same space."""
    mapping = config.to_mapping()
    mapping["evaluation"]["test_cases"] = {"inline": [{"input": {}}]}
    space = load_mapping(mapping, Path()).space
    rng = np.random.default_rng(0)
    default = space.baseline()
    points = [] if default is None else [dict(default)]
    points += [dict(space.sample(rng)) for _ in range(8 * N_ARMS)]
    different = {canonical_json(point): point for point in reversed(points)}
    return [*reversed(different.values())][:N_ARMS]
