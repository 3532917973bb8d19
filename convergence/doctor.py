"""Findings about this machine: what it lacks for the configuration at hand.

Nothing is changed: the store's folder is tried with a file that is taken away again, and
Prefect's settings are read in a process of their own, since importing it takes seconds.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from convergence_core.errors import ConfigurationError

Level = Literal["ok", "warning", "failed"]

FASTAPI_LIMIT = (0, 150)
"""From this FastAPI on, Prefect 3.8's server refuses what its own client sends; from 0.155 on it does
not import."""
WAL_FIXED = {(3, 44): 6, (3, 50): 7, (3, 51): 3}
"""SQLite releases of these lines are sound from this patch; 3.52 and later are all sound."""
FEW_BYTES = 1 << 30
NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs"})
PREFECT_SCRIPT = (
    "import json; from importlib.metadata import version; "
    "from prefect.settings import PREFECT_API_URL; import prefect.main; "
    "print(json.dumps({'version': version('prefect'), 'api_url': PREFECT_API_URL.value()}))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    found: str
    fix: str = ""
    """What to do; empty when all is well."""


def _ok(check: str, state: str) -> Finding:
    return Finding(check=check, level="ok", found=state)


def _failed(check: str, state: str, fix: str) -> Finding:
    return Finding(check=check, level="failed", found=state, fix=fix)


def examine(*, store: Path, config: Path | None) -> list[Finding]:
    """Run all checks; ``config`` adds those of the environment variables that it names."""
    findings = [*_fastapi(), _sqlite(), *_store(store), _prefect(), _local_model()]
    if config is not None:
        findings.extend(_environment(config))
    return findings


def _fastapi() -> Iterator[Finding]:
    if _numbers(version("fastapi"))[:2] >= FASTAPI_LIMIT:
        yield _failed(
            "fastapi",
            f"{version('fastapi')}, with which Prefect 3.8's server fails",
            'pip install "fastapi<0.150"',
        )


def wal_is_sound(sqlite_version: str) -> bool:
    """Whether this SQLite keeps committed transactions when writes and checkpoints race."""
    numbers = _numbers(sqlite_version)
    line, patch = numbers[:2], numbers[2] if len(numbers) > 2 else 0
    return line >= (3, 52) or (line in WAL_FIXED and patch >= WAL_FIXED[line])


def _sqlite() -> Finding:
    try:
        import apsw  # noqa: PLC0415 - a native library: its absence is a finding
    except ImportError as error:
        return _failed("sqlite", f"apsw: {error}", "pip install apsw")
    version = apsw.sqlite_lib_version()
    if wal_is_sound(version):
        return _ok("sqlite", f"{version} (apsw), WAL is sound")
    return _failed(
        "sqlite",
        f"{version} (apsw) can lose committed calls in WAL mode",
        'pip install "apsw>=3.51.3"',
    )


def _store(path: Path) -> Iterator[Finding]:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    try:
        # Writing is the only honest question: root, ACLs and read-only mounts fool mode bits.
        with tempfile.TemporaryFile(dir=existing):
            free = shutil.disk_usage(existing).free
    except OSError as error:
        yield _failed(
            "store",
            f"{path} cannot be written: {error.strerror or error}",
            "Set `storage.path` to a folder of yours, or use --store.",
        )
        return
    level: Level = "ok" if free >= FEW_BYTES else "warning"
    made = "writable" if existing == path else "will be made"
    yield Finding(
        check="store",
        level=level,
        found=f"{path} ({made}), {free / (1 << 30):.1f} GiB free",
        fix="" if level == "ok" else "Make room: a full disk ends a run.",
    )
    kind = _file_system(existing)
    if kind in NETWORK_FILE_SYSTEMS:
        yield _failed(
            "store",
            f"{path} is on a network disk ({kind}), where SQLite's journal is not safe",
            "Set `storage.path` to a folder on a local disk.",
        )


def _file_system(path: Path) -> str | None:
    """Return the type of the file system that holds a path; ``None`` where no one says it."""
    mounts = Path("/proc/mounts")
    if not mounts.is_file():
        return None
    path = path.resolve()
    best, kind = "", None
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        if len(fields) > 2 and path.is_relative_to(fields[1]) and len(fields[1]) >= len(best):
            best, kind = fields[1], fields[2]
    return kind


def _prefect() -> Finding:
    from tasks.prefect_support.settings import prepare  # noqa: PLC0415 - sets no-telemetry for the child

    prepare(quiet=True)
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            [sys.executable, "-c", PREFECT_SCRIPT],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        answer = json.loads(done.stdout.splitlines()[-1])
    except (subprocess.SubprocessError, ValueError, IndexError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        return _failed(
            "prefect",
            f"cannot be imported: {str(detail).strip().splitlines()[-1]}",
            'pip install "prefect>=3.8.8,<3.9" "fastapi<0.150"',
        )
    url = answer["api_url"]
    if not url:
        return _ok(
            "prefect",
            f"{answer['version']}, no server configured: each run starts its own for a while",
        )
    problem = _health(f"{url.rstrip('/')}/health")
    if problem is None:
        return _ok("prefect", f"{answer['version']}, server at {url}")
    return _failed(
        "prefect",
        f"{answer['version']}, but the server at {url} does not answer: {problem}",
        "Start it (`prefect server start`), or unset PREFECT_API_URL "
        "(`prefect config unset PREFECT_API_URL`).",
    )


def _health(url: str) -> str | None:
    """Return why a server is not well, or ``None``."""
    if not url.startswith(("http://", "https://")):
        return "not a http address"
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:  # noqa: S310 - scheme checked
            return None if reply.status == 200 else f"status {reply.status}"
    except urllib.error.HTTPError as error:
        with error:
            return f"status {error.code}"
    except (OSError, ValueError) as error:
        return str(getattr(error, "reason", error))


def _local_model() -> Finding:
    """Return whether a model can run on this machine: optional, so that its absence is no fault."""
    from tasks.models.files import PACKAGED, install_commands  # noqa: PLC0415 - reads an extra's packages

    commands = install_commands()
    if not commands:
        return _ok("local model", f"{PACKAGED} can be asked by `kind: local`")
    return Finding(
        check="local model",
        level="ok",
        found="not installed; only `api.kind: local` needs it",
        fix=" && ".join(commands),
    )


def _environment(config: Path) -> Iterator[Finding]:
    from tasks.inputs.loader import load  # noqa: PLC0415 - brings pydantic and numpy
    from tasks.secrets.redaction import secret_names  # noqa: PLC0415 - as above

    try:
        loaded = load(config)
    except ConfigurationError as error:
        n = len(error.problems)
        yield _failed(
            "configuration",
            f"{config} has {n} problem{'' if n == 1 else 's'}",
            f"convergence validate {config}",
        )
        return
    yield _ok("configuration", str(config))
    for name in sorted(secret_names(loaded.configuration)):
        if os.environ.get(name):
            yield _ok("environment", f"{name} is set")
        else:
            yield _failed(
                "environment", f"{name} is not set, but {config} names it", f"export {name}=…"
            )


def _numbers(text: str) -> tuple[int, ...]:
    """Return the first three numbers of a version."""
    return tuple(map(int, re.findall(r"\d+", text)[:3]))
