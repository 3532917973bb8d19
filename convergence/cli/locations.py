"""Paths of the configuration in the working folder and of its results store."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from convergence import console
from convergence_core.errors import ConfigurationError, RunNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tasks.inputs.loader import Loaded
    from tasks.store.feedback.feedback_store import FeedbackStore
    from tasks.store.runtime.runtime_store import RuntimeStore
    from tasks.store.tables.parquet_store import ParquetStore

CONFIG_NAME = "optimization.yaml"
DEFAULT_STORE = "./convergence-data"


def load_with(config: Path, assignments: "Sequence[str] | None") -> "Loaded":
    """Load a configuration with ``--set`` overrides, and print its warnings.

    Raises:
        ConfigurationError: the file or an assignment is wrong; contains all problems of a step.
    """
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic

    loaded = load(config, assignments or ())
    for warning in loaded.warnings:
        console.say(f"warning: {warning}", style="yellow")
    return loaded


def store_path(store: Path | None, config: Path | None) -> Path:
    """Return the store's folder: ``--store``, else the configuration's, else the default.

    Reads only ``storage``, so that results stay accessible while you edit the rest.

    Raises:
        ConfigurationError: the configuration is unreadable.
    """
    if store is not None:
        return store
    if config is None:
        config = Path(CONFIG_NAME)
        if not config.is_file():
            return Path(DEFAULT_STORE)
    return config.parent / _storage_path(config)


def configuration_of(store: Path | None, config: Path | None) -> Path | None:
    """Return the configuration behind ``store_path``, or ``None``."""
    if config is not None:
        return config
    beside = Path(CONFIG_NAME)
    return beside if store is None and beside.is_file() else None


def open_store(store: Path | None, config: Path | None) -> "ParquetStore":
    """Open the store for reading, and mark runs without a process as interrupted.

    Raises:
        RunNotFoundError: the store does not exist.
        StoreError: the folder is no store, or a newer version wrote it.
    """
    path = _existing(store, config)
    from tasks.store.tables.interrupted_runs import settle_interrupted  # noqa: PLC0415 - as above
    from tasks.store.tables.parquet_store import ParquetStore  # noqa: PLC0415 - brings DuckDB

    opened = ParquetStore(path)
    settle_interrupted(opened)
    return opened


def _existing(store: Path | None, config: Path | None) -> Path:
    path = store_path(store, config)
    if not (path / "store.json").is_file():
        raise RunNotFoundError(
            f"No results store at {path}. Run `convergence optimize`, or pass `--store FOLDER`."
        )
    return path


def open_runtime(store: Path | None, config: Path | None) -> "RuntimeStore":
    """Open the runtime state of an existing store.

    Raises:
        RunNotFoundError: the store does not exist.
    """
    from tasks.store.runtime.runtime_store import RuntimeStore  # noqa: PLC0415 - brings SQLite

    return RuntimeStore(_existing(store, config))


def open_feedback(store: Path | None, config: Path | None) -> "FeedbackStore":
    """Open the feedback of an existing store.

    Raises:
        RunNotFoundError: the store does not exist.
    """
    from tasks.store.feedback.feedback_store import FeedbackStore  # noqa: PLC0415 - brings SQLite

    return FeedbackStore(_existing(store, config))


def resume_options(store: Path | None, config: Path | None, *, offline: bool) -> str:
    """Return the options that let ``resume`` find a run of this store from this folder."""
    options = " --offline" if offline else ""
    if store is not None:
        return f"{options} --store {shlex.quote(str(store))}"
    if config is None or config == Path(CONFIG_NAME):
        return options
    return f"{options} --config {shlex.quote(str(config))}"


def _storage_path(config: Path) -> str:
    import yaml  # noqa: PLC0415 - only to read a configuration

    try:
        if config.exists() and not config.is_file():
            raise OSError("not a file")
        tree = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "problem", None) or getattr(error, "strerror", None) or str(error)
        raise ConfigurationError.of(
            "",
            "must be readable YAML to find the results store",
            "Fix it (`convergence validate`), or pass `--store FOLDER`.",
            value=str(reason),
            file=str(config),
        ) from error
    storage = tree.get("storage") if isinstance(tree, dict) else None
    storage = storage if isinstance(storage, dict) else {}
    path = storage.get("path")
    if isinstance(path, str) and "://" in path:
        path = storage.get("local")  # local copy of the remote store
    return path if isinstance(path, str) and path else DEFAULT_STORE
