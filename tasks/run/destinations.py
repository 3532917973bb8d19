"""Destinations of a run, checked before anything is paid."""

import tempfile
from pathlib import Path

import httpx

from convergence_core.config import Configuration
from convergence_core.config.secrecy import dotted, shown_url
from convergence_core.errors import ConfigurationError, Problem, StoreError
from tasks.store.layout import check_format, store_root


def check_destinations(configuration: Configuration, base_dir: Path) -> None:
    """Check that store and result files can be written, and that clients take each address.

    Nothing is left behind, and nothing is called.

    Args:
        configuration: of the run.
        base_dir: folder that relative paths of the configuration start from.

    Raises:
        ConfigurationError: a folder of ``storage`` or ``output`` is none, holds something else, or
            cannot be written to; or no name of a host has the characters of an address.
    """
    output, storage = configuration.output, configuration.storage
    store_key = "storage.path" if storage.remote is None else "storage.local"
    store = base_dir / storage.folder
    folders = {store_key: store, "output.save_path": base_dir / output.save_path}
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
    problems += _address_problems(configuration)
    if problems:
        raise ConfigurationError(problems)


def _address_problems(configuration: Configuration) -> list[Problem]:
    """Return the addresses that a run may call and that no client takes."""
    api = configuration.api
    key_to_url = {"api.endpoint": api.endpoint}
    key_to_url |= {f"api.models.{name}.endpoint": m.endpoint for name, m in api.models.items()}
    key_to_url |= {dotted((*path, "endpoint")): llm.endpoint for path, llm in configuration.llms}
    problems: list[Problem] = []
    for key, url in key_to_url.items():
        try:
            httpx.URL(url or "")
        except httpx.InvalidURL as error:
            rule, fix = "must be a URL that can be called", "Write the host as its provider does."
            why = str(error).rstrip(".")
            problems.append(
                Problem(key=key, rule=rule, value=shown_url(url or ""), fix=f"{why}. {fix}")
            )
    return problems


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
