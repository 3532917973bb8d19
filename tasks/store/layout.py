"""Layout of a store: its folders, and files that appear whole or not at all.

::

    store.json                                       format and schema version
    remote.json                                      address on object storage, if it has one
    journal.sqlite                                   paid calls and leases
    runtime.sqlite                                   arms, decisions, rewards, looks, champions
    feedback.sqlite                                  logged answers, ratings, comparisons, adapters
    adapters/<version>/                              weights and settings of an adapter
    training/<round>/                                checkpoints of a training round
    live/<table>/run_id=<run>/g00012.parquet         unfinished runs, one file per generation
    live/<table>/run_id=<run>/final.parquet          the re-estimation after the last generation
    live/runs/run_id=<run>/run.parquet               the run's row, replaced as it continues
    final/<table>/run_id=<run>/part-0.parquet        finished runs, one file per table
    final/<table>/day=<day>/seq-<lo>-<hi>.parquet    decisions and rewards, by UTC day
    final/<table>/day=<day>/seq-<time>-<id>.parquet  audits of tasks, by UTC day
    final/attempts/day=<day>/<hash>.parquet          calls of a service's answers, by system

Files and folders of a store, report or export hold prompts and answers, so only their owner can
read them. A replaced file keeps the mode that its user has set.
"""

import contextlib
import errno
import fcntl
import json
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from convergence_core.errors import StoreFormatError, StoreWriteError
from tasks.store.clock import utc

FILE_MODE = 0o600
FOLDER_MODE = 0o700
FORMAT = 1
"""Format of the store; increases only if an older version cannot read the new files."""
SCHEMA_VERSION = 6
"""Version of the tables, stored in every file; increases with each new column."""

MARKER_FILE = "store.json"
JOURNAL_FILE = "journal.sqlite"
RUN_FILE = "run.parquet"
PART_FILE = "part-0.parquet"
FINAL_GENERATION = -1

_RUN = "run_id="
_RUN_ID = re.compile(r"[A-Za-z0-9._-]+")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
_NOT_A_FOLDER = (errno.ENOTDIR, errno.EEXIST, errno.EISDIR)
_FIXES = {
    _FULL: "The disk is full: free some space, or set `storage.path` to a folder elsewhere",
    _FORBIDDEN: "Make the folder writable for this user, or set `storage.path` to another one",
    _NOT_A_FOLDER: "A file lies where a folder should be: move it, or set `storage.path` elsewhere",
}


def store_root(path: Path | str) -> Path:
    """Return the absolute root folder of a store, which need not exist.

    Raises:
        StoreFormatError: the path contains a character that readers would expand.
    """
    text = str(path)
    if any(character in text for character in "*?["):
        raise StoreFormatError(
            f"`storage.path` must not hold `*`, `?` or `[`, which readers of parquet files "
            f"expand, but got {text}. Choose another folder."
        )
    return Path(path).absolute()


def check_format(root: Path) -> bool:
    """Return whether a store exists at ``root``.

    Raises:
        StoreFormatError: the folder is not a store, or has a newer format.
        StoreWriteError: the path is a file, or the folder is unreadable.
    """
    try:
        names = {entry.name for entry in root.iterdir()}
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _write_error(root, error) from error
    if MARKER_FILE not in names:
        foreign = sorted(n for n in names if not n.startswith(".") and n != "lost+found")
        if foreign:
            raise StoreFormatError(
                f"{root} is not a store of The Convergence: it holds {foreign[0]} and no "
                f"{MARKER_FILE}. Set `storage.path` to a new or an empty folder."
            )
        return False
    marker = root / MARKER_FILE
    with writing(marker):
        text = marker.read_text("utf-8", "replace")
    check_marker(text, marker)
    return True


def check_marker(text: str, where: object) -> None:
    """Check that this version can read a store with this marker.

    Raises:
        StoreFormatError: the format is unknown or newer.
    """
    try:
        version = json.loads(text)["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreFormatError(
            f"{where} must be JSON with a number `format`, but it is not. If this folder is "
            f'a store, write {{"format": {FORMAT}}} into it.'
        ) from error
    if not isinstance(version, int) or version > FORMAT:
        root = str(where).rpartition("/")[0]
        raise StoreFormatError(
            f"the store {root} has format {version}, and this version reads up to "
            f"{FORMAT}. Upgrade convergence-optimizer, or set `storage.path` to another folder."
        )


def ensure_store(root: Path) -> None:
    """Create the store's folder and its marker if they are missing.

    Raises:
        StoreFormatError: the path is not a store.
        StoreWriteError: the folder cannot be created.
    """
    if check_format(root):
        return
    with writing(root):
        make_folder(root)
        with whole_file(root / MARKER_FILE) as temporary:
            text = json.dumps({"format": FORMAT, "schema_version": SCHEMA_VERSION})
            temporary.write_text(text + "\n")


def check_run_id(run_id: str) -> str:
    """Return a run id that is safe in a path.

    Raises:
        ValueError: the id is unsafe.
    """
    if not _RUN_ID.fullmatch(run_id) or set(run_id) == {"."}:
        raise ValueError(f"a run id must match {_RUN_ID.pattern}, but got {run_id!r}")
    return run_id


def generation_file(generation: int) -> str:
    """Return the file name of one generation's rows.

    Raises:
        ValueError: the number is below -1.

    Example:
        >>> generation_file(12)
        'g00012.parquet'
    """
    if generation == FINAL_GENERATION:
        return "final.parquet"
    if generation < 0:
        raise ValueError(f"a generation must be -1 (final) or from 0, but got {generation}")
    return f"g{generation:05d}.parquet"


def folder_of(root: Path, stage: str, table: str, run_id: str) -> Path:
    """Return the folder of one run's files of one table; ``stage`` is ``live`` or ``final``."""
    return root / stage / table / f"{_RUN}{run_id}"


def day_folder(root: Path, table: str, at_us: int) -> Path:
    """Return the folder of a table's rows of a UTC day, which belong to no run."""
    return root / "final" / table / f"day={utc(at_us):%Y-%m-%d}"


def live_row(root: Path, run_id: str) -> Path:
    """Return the file of an unfinished run's row."""
    return folder_of(root, "live", "runs", run_id) / RUN_FILE


def final_row(root: Path, run_id: str) -> Path:
    """Return the file of a finished run's row, which makes its other files visible."""
    return folder_of(root, "final", "runs", run_id) / PART_FILE


def runs_in(folder: Path) -> list[str]:
    """Return the runs with files in a folder of one table, sorted."""
    return sorted(name.removeprefix(_RUN) for name in names_in(folder) if name.startswith(_RUN))


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, unsorted; empty if the folder does not exist."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone, a third of the time
    except FileNotFoundError:
        return []


def temporary_name(final: Path) -> Path:
    """Return a name next to ``final`` that no reader mistakes for a table's file."""
    return final.with_name(f".{final.name}.{uuid.uuid4().hex}.tmp")


def make_folder(path: Path) -> None:
    """Create a folder and its parents durably, readable by their owner only."""
    if path.is_dir():
        return
    if path.parent != path:
        make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(FOLDER_MODE)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    sync_folder(path.parent)


def create_file(path: Path) -> None:
    """Create an empty file, readable by its owner only; a stricter umask applies.

    Raises:
        FileExistsError: the file exists.
    """
    path.touch(FILE_MODE, exist_ok=False)


def keep_mode(temporary: Path, final: Path) -> None:
    """Copy the mode of the file that ``temporary`` is about to replace, if any."""
    if final.is_file():
        temporary.chmod(final.stat().st_mode & 0o777)


def write_file(path: Path, text: str) -> None:
    """Write a string to a user's path; only its owner can read a new file.

    Like a shell, this follows links and writes to devices; an existing file keeps its mode.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as stream:
        stream.write(text)


def publish_file(temporary: Path, final: Path) -> None:
    """Rename a written file so that a power loss leaves all of it or nothing."""
    descriptor = os.open(temporary, os.O_RDWR)
    try:
        os.fchmod(descriptor, os.fstat(descriptor).st_mode & FILE_MODE)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(final)
    sync_folder(final.parent)


@contextlib.contextmanager
def whole_file(final: Path) -> Iterator[Path]:
    """Yield an empty file that durably gets its final name after the block.

    Raises:
        StoreWriteError: the write failed; the previous file, if any, is unchanged.

    Example:
        >>> with whole_file(root / "store.json") as temporary:
        ...     temporary.write_text("{}")
    """
    temporary = temporary_name(final)
    with writing(final):
        try:
            create_file(temporary)
            yield temporary
            publish_file(temporary, final)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, *, should_wait: bool = True) -> Iterator[bool]:
    """Hold the lock of a file for the block, creating the file if it is missing.

    Yields:
        Whether the lock is held; without waiting it is not if another process holds it.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if should_wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    else:
        yield True
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` of the block into a ``StoreWriteError`` with a fix."""
    try:
        yield
    except OSError as error:
        raise _write_error(path, error) from error


def write_error(path: Path, reason: str) -> StoreWriteError:
    """Return the error of a write that failed for ``reason``, with a fix."""
    fix = "Check the disk and the folder's permissions, or set `storage.path` to another folder"
    if "disk is full" in reason.lower():  # SQLite's wording
        fix = _FIXES[_FULL]
    for codes, known_fix in _FIXES.items():
        for words in map(os.strerror, codes):
            if words.lower() in reason.lower():
                # Libraries wrap the system's message in their own text and in JSON.
                reason, fix = words, known_fix
    return StoreWriteError(
        f"cannot use the store at {path}: {reason}. {fix}. Nothing that was paid or "
        "published is lost; `convergence resume` continues from there."
    )


def _write_error(path: Path, error: OSError) -> StoreWriteError:
    where = error.filename if isinstance(error.filename, str) else str(path)
    return write_error(Path(where), error.strerror or str(error))


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_run_id(now_us: int, rng_bytes: bytes) -> str:
    """Return a ULID: 48 bits of milliseconds and 80 random bits as 26 characters.

    Args:
        now_us: microseconds since the epoch.
        rng_bytes: 10 random bytes.
    """
    number = now_us // 1_000 << 80 | int.from_bytes(rng_bytes, "big")
    return "".join(_ALPHABET[number >> shift & 31] for shift in range(125, -1, -5))


def label_of(system: str, run_id: str) -> str:
    """Return a run's short display name, e.g. ``support_bot-7f3a``."""
    return f"{system}-{run_id[-4:].lower()}"


def begun_us(run_id: str) -> int:
    """Return a run's start by its id: microseconds since the epoch, in whole milliseconds.

    Raises:
        ValueError: the id is not a ULID.
    """
    number = 0
    for character in run_id:
        number = number << 5 | _ALPHABET.index(character)
    return (number >> 80) * 1_000
