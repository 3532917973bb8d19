"""Store folder of a configuration, and the record of a new run."""

import os
from collections.abc import Mapping
from pathlib import Path

from convergence_core.ports import RunRecord
from convergence_core.records import canonical_json, sha256_hex
from tasks.inputs.loader import Loaded
from tasks.store.clock import wall_clock_us
from tasks.store.layout import label_of, new_run_id
from tasks.store.tables.object_storage import Mirror, bind, check_installed
from tasks.version import code_version


def store_path(loaded: Loaded) -> Path:
    """Return the folder of the results store; relative paths start at the configuration."""
    return (loaded.base_dir / loaded.configuration.storage.folder).resolve()


def bound_folder(loaded: Loaded) -> Path:
    """Return the folder of the results store, bound to its remote address if it has one.

    Raises:
        StoreError: the extra is not installed, or the folder belongs to another address.
    """
    path, url = store_path(loaded), loaded.configuration.storage.remote
    if url is not None:
        check_installed()
        bind(path, url)
    return path


def ready_store(loaded: Loaded) -> Path:
    """Return the folder of the results store, updated with the runs of other machines.

    Raises:
        StoreError: object storage cannot be used: the extra, the address or the credentials.
    """
    path, url = bound_folder(loaded), loaded.configuration.storage.remote
    if url is not None:
        Mirror(path, url).pull()
    return path


def new_record(loaded: Loaded, *, name: str, tags: Mapping[str, str]) -> RunRecord:
    """Return the record of a run that starts now.

    Args:
        loaded: Configuration and cases.
        name: Name of the system.
        tags: Tags of the run.
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
