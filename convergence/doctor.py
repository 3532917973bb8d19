"""Checks of this machine against its configuration."""

import os
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from convergence_core.errors import ConfigurationError, StoreError

FEW_BYTES = 1 << 30
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs"})


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check."""

    check: str
    level: Literal["ok", "warning", "failed"]
    state: str
    fix: str = ""
    """Fix; empty if the check passed."""


def examine(*, store: Path, config: Path | None) -> Iterator[Finding]:
    """Run all checks; ``config`` adds those of its environment variables and model."""
    yield _sqlite()
    yield _store(store)
    yield _prefect()
    if config is not None:
        yield from _configuration(config)


def _sqlite() -> Finding:
    from tasks.store.sqlite import checked_version  # noqa: PLC0415 - a native library

    try:
        return Finding("sqlite", "ok", f"{checked_version()} (apsw), WAL is sound")
    except StoreError as error:
        return Finding("sqlite", "failed", str(error), 'pip install "apsw>=3.51.3"')


def _store(path: Path) -> Finding:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        # Only writing tells: root, ACLs and read-only mounts make mode bits unreliable.
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        state = f"{path} cannot be written: {error.strerror or error}"
        fix = "Set `storage.path` to a folder of yours, or use --store."
        return Finding("store", "failed", state, fix)
    if (kind := _file_system(existing)) in NETWORK_FILE_SYSTEMS:
        state = f"{path} is on a network disk ({kind}), where SQLite's journal is not safe"
        return Finding("store", "failed", state, "Set `storage.path` to a folder on a local disk.")
    state = f"{path}, {free / (1 << 30):.1f} GiB free"
    if free < FEW_BYTES:
        return Finding("store", "warning", state, "Make room: a full disk ends a run.")
    return Finding("store", "ok", state)


def _file_system(path: Path) -> str | None:
    """Return the type of the file system that holds a path; ``None`` if it is unknown."""
    mounts = Path("/proc/mounts")
    if not mounts.is_file():
        return None
    lines = [line.split() for line in mounts.read_text("utf-8", "replace").splitlines()]
    over = [fields for fields in lines if path.resolve().is_relative_to(fields[1])]
    # The last of several mounts on a folder hides the others.
    return max(reversed(over), key=lambda fields: len(fields[1]))[2] if over else None


def _prefect() -> Finding:
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - must come before Prefect

    prepare(quiet=True)
    from prefect.settings import PREFECT_API_URL  # noqa: PLC0415 - takes a second

    url = PREFECT_API_URL.value()
    if not url:
        return Finding(
            "prefect", "ok", "no server configured: each run starts its own for a while"
        )
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=10):  # noqa: S310 - Prefect's setting
            return Finding("prefect", "ok", f"server at {url}")
    except (OSError, ValueError) as error:
        fix = "Start it (`prefect server start`), or run `prefect config unset PREFECT_API_URL`."
        return Finding("prefect", "failed", f"the server at {url} does not answer: {error}", fix)


def _configuration(config: Path) -> Iterator[Finding]:
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic and numpy
    from tasks.models.files import install_commands  # noqa: PLC0415 - reads an extra's packages
    from tasks.secrets.redaction import secret_names  # noqa: PLC0415 - as above

    try:
        configuration = load(config).configuration
    except ConfigurationError as error:
        state = f"{config} has {len(error.problems)} problem(s)"
        yield Finding("configuration", "failed", state, f"convergence validate {config}")
        return
    yield Finding("configuration", "ok", str(config))
    commands = " && ".join(install_commands())
    if configuration.api.kind == "local" and commands:
        yield Finding("local model", "failed", "not installed", commands)
    for name in sorted(secret_names(configuration)):
        if os.environ.get(name):
            yield Finding("environment", "ok", f"{name} is set")
        else:
            state = f"{name} is not set, but {config} names it"
            yield Finding("environment", "failed", state, f"export {name}=…")
