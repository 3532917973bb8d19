"""Record of a new run, from its configuration's files."""

import os
from collections.abc import Mapping

from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json, sha256_hex
from tasks.inputs.loader import Loaded
from tasks.store import new_run_id
from tasks.store.clock import wall_clock_us
from tasks.store.tables.ids import label_of
from tasks.version import code_version


def new_record(loaded: Loaded, *, name: str, tags: Mapping[str, str]) -> RunRecord:
    """Return the record of a run that begins now.

    Args:
        loaded: configuration and cases.
        name: of the system.
        tags: of the run.
    """
    started = wall_clock_us()
    run_id = new_run_id(started, os.urandom(10))
    config_json = loaded.configuration.to_json()
    return RunRecord(
        run_id=run_id,
        name=name,
        label=label_of(name, run_id),
        status="running",
        started_us=started,
        config_json=config_json,
        config_sha256=sha256_hex(config_json),
        config_path=None if loaded.config_path is None else str(loaded.config_path),
        base_dir=str(loaded.base_dir.resolve()),
        search_space_json=canonical_json(loaded.space.to_json()),
        cases_sha256=loaded.cases_sha256,
        seed=loaded.configuration.optimization.seed,
        code_version=code_version(),
        tags=tags,
    )
