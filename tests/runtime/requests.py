"""Short ways to serve the requests of a system, by Python's functions."""

import itertools
from pathlib import Path
from typing import Any

import convergence
from tasks.serving.answers import RuntimeSelection

_NUMBERS = itertools.count()


def configured(path: Path, **config: Any) -> str:
    """Configure a system of its own in a store below a folder; return its name."""
    name = f"{path.name} {next(_NUMBERS)}"
    convergence.configure_runtime_sync(name, config=config, storage=path / "s")
    return name


def select(system: str, **request: Any) -> RuntimeSelection:
    return convergence.runtime_select_sync(system, **{"user_id": "u", **request})


def update(system: str, chosen: RuntimeSelection, **given: Any) -> dict[str, Any]:
    request = {"user_id": "u", "decision_id": chosen.decision_id, **given}
    return convergence.runtime_update_sync(system, **request)
