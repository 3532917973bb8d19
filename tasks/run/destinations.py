"""Destinations of a run, checked before anything is paid."""

import tempfile
from pathlib import Path

from convergence_core.config import Configuration
from convergence_core.errors import ConfigurationError, Problem, StoreError
from tasks.store.layout import check_format, store_root


def check_destinations(configuration: Configuration, base_dir: Path) -> None:
    """Check that store and result files can be written; nothing is left behind.

    Args:
        configuration: of the run.
        base_dir: folder that relative paths of the configuration start from.

    Raises:
        ConfigurationError: a folder of ``storage`` or ``output`` is none, holds something else, or
            cannot be written to.
    """
    output, storage = configuration.output, configuration.storage
    store_key = "storage.path" if storage.remote is None else "storage.local"
    store = base_dir / storage.folder
    export_key = "output.export_best_config.output_path"
    export = output.export_best_config
    file = base_dir / export.output_path if export.enabled and export.output_path else None
    folders = {store_key: store, "output.save_path": base_dir / output.save_path}
    if file is not None:
        folders[export_key] = file.parent
    problems = [
        Problem(
            key=key,
            rule="must lead to a folder that can be written to",
            value=f"{folder}: {why}",
            fix="Permit writing there, or set another folder.",
        )
        for key, folder in folders.items()
        if (why := _why_not(folder)) is not None
    ]
    wrong = {problem.key for problem in problems}
    if store_key not in wrong:
        problems += _store_problems(store, store_key)
    if file is not None and export_key not in wrong:
        problems += _file_problems(file, export_key)
    if problems:
        raise ConfigurationError(problems)


def _file_problems(file: Path, key: str) -> list[Problem]:
    """Return what keeps a file in a folder that can be written to from being written."""
    rule, fix = "must name a file that can be written", "Name another file."
    try:
        why = "a folder" if file.is_dir() else None
    except OSError as error:  # a name that is too long
        why = error.strerror or str(error)
    return [] if why is None else [Problem(key=key, rule=rule, value=f"{file}: {why}", fix=fix)]


def _store_problems(root: Path, key: str) -> list[Problem]:
    """Return what keeps a folder that can be written to from being a store."""
    try:
        check_format(store_root(root))
    except StoreError as error:
        rule = "must lead to a store's folder, or to a new or an empty one"
        return [Problem(key=key, rule=rule, value=f"this: {error}", fix="Set another folder.")]
    return []


def _why_not(folder: Path) -> str | None:
    """Return why no file can be written to a folder, or to where it will be made."""
    try:
        while not folder.exists() and folder != folder.parent:
            if folder.is_symlink():
                return "a link that leads nowhere"
            folder = folder.parent
        # Writing is the only honest question: root, ACLs and read-only mounts fool mode bits.
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.strerror or str(error)
