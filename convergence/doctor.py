"""Findings about this machine: one for each thing that an optimization leans on.

Nothing is changed: the store's folder is tried with a file that is taken away again, and
Prefect's settings are read in a process of their own, since importing it takes seconds.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, metadata, version
from pathlib import Path
from typing import Literal, get_args

from convergence_core.errors import ConfigurationError, ForeignPackageError
from convergence_core.packages import check_packages

Level = Literal["ok", "warning", "failed"]

PACKAGES = (
    "prefect",
    "fastapi",
    "pydantic",
    "httpx",
    "numpy",
    "scipy",
    "polars",
    "duckdb",
    "openai",
    "pyyaml",
    "apsw",
    "jellyfish",
    "datasketch",
    "matplotlib",
)
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
DEVELOPERS = frozenset({"all", "docs", "lint", "test", "test-slow"})
"""Extras that no feature needs."""
FORMER = frozenset({"agents", "training"})
"""Extras whose names stay installable: they bring nothing, or what another brings."""
LOAD_S = 60.0
"""Seconds that a plugin's code may take to load."""
LOAD_SCRIPT = """
import json, os, sys
from importlib.metadata import EntryPoint
path, *entry = json.loads(sys.argv[1])
sys.path[:] = path
try:
    found = EntryPoint(*entry).load()
    fault = "" if callable(found) else f"is no factory, but a {type(found).__name__}"
except BaseException as error:
    fault = f"is not importable: {type(error).__name__}: {error}"
print("\\n" + json.dumps(fault), flush=True)
os._exit(0)  # threads that a plugin began do not hold it up
"""
_MAX_FAULT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    found: str
    fix: str = ""
    """What to do; empty when all is well."""


def _ok(check: str, found: str) -> Finding:
    return Finding(check=check, level="ok", found=found)


def _warning(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level="warning", found=found, fix=fix)


def _failed(check: str, found: str, fix: str) -> Finding:
    return Finding(check=check, level="failed", found=found, fix=fix)


def examine(*, store: Path, config: Path | None) -> list[Finding]:
    """Run all checks; ``config`` adds those of the environment variables that it names."""
    findings = [_python(), *_packages(), _ours(), _sqlite(), *_store(store), _prefect(), _zone()]
    findings += [_local_model(), *_extras(), *_plugins()]
    if config is not None:
        findings.extend(_environment(config))
    return findings


def _python() -> Finding:
    found = f"{platform.python_version()} on {platform.system()}, {os.cpu_count()} processors"
    return _ok("python", found)


def _packages() -> Iterator[Finding]:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        yield _failed(
            "packages", f"missing: {', '.join(missing)}", f"pip install {' '.join(missing)}"
        )
    else:
        yield _ok("packages", ", ".join(found))
    if "fastapi" not in missing and _numbers(version("fastapi"))[:2] >= FASTAPI_LIMIT:
        yield _failed(
            "fastapi",
            f"{version('fastapi')}, with which Prefect 3.8's server fails",
            'pip install "fastapi<0.150"',
        )


def _ours() -> Finding:
    try:
        check_packages(("convergence", "convergence_core", "flows", "tasks"))
    except ForeignPackageError as error:
        return _failed("own packages", "mixed with others", str(error))
    try:
        other = version("the-convergence")
    except PackageNotFoundError:
        return _ok("own packages", "all of this distribution")
    return Finding(
        check="own packages",
        level="warning",
        found=f"the-convergence {other} is installed too and has files of the same names",
        fix="pip uninstall the-convergence, then reinstall convergence-optimizer",
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
    ours = apsw.sqlite_lib_version()
    if wal_is_sound(ours):
        return _ok("sqlite", f"{ours} (apsw), WAL is sound")
    return _failed(
        "sqlite",
        f"{ours} (apsw) can lose committed calls in WAL mode",
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
    """Return the type of the file system that holds a path; ``None`` where nobody says it."""
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


def _zone() -> Finding:
    now = datetime.now().astimezone()
    return _ok("time zone", f"{now.tzname()} (UTC{now:%z}), now {now:%Y-%m-%d %H:%M}")


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


def _extras() -> Iterator[Finding]:
    """Return which extras are installed; nothing for a checkout that is not installed itself."""
    from tasks.version import install_command  # noqa: PLC0415 - reads where this package is

    try:
        required = metadata("convergence-optimizer").get_all("Requires-Dist") or []
    except PackageNotFoundError:
        return
    extras: dict[str, list[str]] = {}
    for line in required:
        marked = re.match(r"([\w.-]+).*\bextra\s*==\s*['\"]([\w-]+)['\"]", line)
        if marked is not None and marked[2] not in DEVELOPERS | FORMER:
            extras.setdefault(marked[2], []).append(marked[1])
    missing = [name for name, needed in extras.items() if not all(map(_is_installed, needed))]
    there = ", ".join(name for name in extras if name not in missing) or "none"
    if not missing:
        yield _ok("extras", f"all installed: {there}")
        return
    yield Finding(
        check="extras",
        level="ok",
        found=f"installed: {there}; missing, and needed by their features alone: {', '.join(missing)}",
        fix=install_command("NAME"),
    )


def _is_installed(distribution: str) -> bool:
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _plugins() -> Iterator[Finding]:
    """Load each installed plugin in a process of its own: what hangs or ends there ends no more."""
    from tasks.plugins.entry_points import PluginGroup, installed_plugins  # noqa: PLC0415 - brings numpy

    plugins = [one for group in get_args(PluginGroup) for one in installed_plugins(group)]
    if not plugins:
        yield _ok("plugins", "none is installed")
    for plugin in plugins:
        named = f"`{plugin.name}` of {plugin.group}, package {plugin.package} {plugin.version}"
        rivals = [
            one.package
            for one in plugins
            if (one.group, one.name) == (plugin.group, plugin.name) and one is not plugin
        ]
        fault = _load_fault(plugin.name, plugin.entry_point.value, plugin.group)
        if fault:
            yield _warning(
                "plugins", f"{named}, {fault}", f"Repair or reinstall {plugin.package}."
            )
        elif rivals:
            yield _warning(
                "plugins",
                f"{named}, is offered by {', '.join(rivals)}, too",
                "Uninstall one of them: a name that two packages offer is refused.",
            )
        else:
            yield _ok("plugins", f"{named}, loads")


def _load_fault(name: str, value: str, group: str) -> str:
    """Return why an entry point cannot be used; empty where it can."""
    from tasks.secrets.process_redaction import redacted_text  # noqa: PLC0415 - as above
    from tasks.secrets.redaction import one_line  # noqa: PLC0415 - as above

    asked = json.dumps([sys.path, name, value, group])
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            [sys.executable, "-c", LOAD_SCRIPT, asked],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=LOAD_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"did not load within {LOAD_S:g} s"
    try:
        fault = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return f"ends the process that loads it (exit code {done.returncode})"
    return one_line(str(fault), _MAX_FAULT, redacted_text)


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
