"""Detection of damaged files in the store.

Each file carries the SHA-256 of its bytes, computed with zeros in the digest's place. A commit
marker (``generations`` of an unfinished run, ``runs`` of a finished one) also carries the digests
of the files that it makes visible.
"""

import contextlib
import hashlib
import os
import re
import struct
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from convergence_core.errors import StoreDamagedError
from tasks.store.layout import generation_file
from tasks.store.tables.columns import quoted

_T = TypeVar("_T")
_OFFLINE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_KEY = "convergence_sha256"
_BLANK = "0" * 64
# In Thrift's compact protocol these two bytes precede a string of 64 characters.
_DIGEST_MARK = _KEY.encode() + b"\x18\x40"
_COMMITTED = re.compile(_KEY.encode() + rb"_(\w+)\x18\x40([0-9a-f]{64})")
_TAIL = struct.Struct("<I4s")
FLIPPED = "its content changed after it was written"
MOST_CHECKED = 24 << 20
"""Maximum total bytes of a query's files for which digests are checked. This takes 30 ms; a
command takes at least 0.75 s.
"""


def digests_sql(committed: Mapping[str, str]) -> str:
    """Return the entries of COPY's ``KV_METADATA`` that ``seal`` completes.

    Args:
        committed: table → digest of the file that this commit marker makes visible.
    """
    keys = {_KEY: _BLANK} | {f"{_KEY}_{name}": digest for name, digest in committed.items()}
    return ", ".join(f"{key}: '{digest}'" for key, digest in keys.items())


def seal(path: Path) -> None:
    """Write the digest of a new file into its reserved place."""
    with path.open("r+b") as stream:
        data = stream.read()
        stream.seek(data.rfind(_DIGEST_MARK) + len(_DIGEST_MARK))
        stream.write(hashlib.sha256(data).hexdigest().encode())


def digest_in(path: Path | str) -> str | None:
    """Return the digest stored in a file; ``None`` if it has none."""
    footer = _footer(path)
    at = _place(footer)
    return None if at is None else footer[at : at + len(_BLANK)].decode("ascii", "replace")


def is_flipped(path: Path | str) -> bool:
    """Return whether a file's bytes differ from its digest."""
    data = Path(path).read_bytes()
    at = _place(data)
    if at is None:
        return True
    end, view = at + len(_BLANK), memoryview(data)
    digest = hashlib.sha256(view[:at])
    digest.update(_BLANK.encode())
    digest.update(view[end:])
    return digest.hexdigest().encode() != data[at:end]


def missing_files(
    files: Mapping[str, Sequence[str]], tables: Collection[str]
) -> list[tuple[str, str]]:
    """Return (path, reason) of each committed file that is missing.

    Args:
        files: visible paths by table, including markers.
        tables: tables to check.
    """
    visible = {file for name in tables for file in files[name]}
    return [
        (file, "it was committed but is missing")
        for name, file in committed_files(files)
        if name in tables and file not in visible and not Path(file).exists()
    ]


def committed_files(files: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield (table, path) of the files that visible commit markers name, and earlier markers."""
    for marker in (*files["runs"], *files["generations"]):
        folder, _, name = marker.rpartition("/")
        stage, _, run = folder.rpartition("/")
        root = stage.rpartition("/")[0]
        for table, _ in committed(marker):
            yield table, f"{root}/{table}/{run}/{name}"
        if name[0] == "g" and name != generation_file(0):
            before = generation_file(int(name[1:].partition(".")[0]) - 1)
            yield "generations", f"{folder}/{before}"


def committed(marker: str) -> tuple[tuple[str, str], ...]:
    """Return (table, digest) of each file of a commit marker; empty if the marker is gone."""
    return tuple(
        entry
        for file, inode, time_ns, _ in _versions([marker])
        for entry in _committed(file, inode, time_ns)
    )


@lru_cache(maxsize=100_000)
def _committed(marker: str, inode: int, time_ns: int) -> tuple[tuple[str, str], ...]:  # noqa: ARG001 - the key of the cache
    return tuple((m[1].decode(), m[2].decode()) for m in _COMMITTED.finditer(_footer(marker)))


def check_files(files: Mapping[str, Sequence[str]], tables: Collection[str]) -> None:
    """Check that the files of these tables exist and, if they are small, are unchanged.

    Raises:
        StoreDamagedError: a file is missing or has changed.
    """
    if missing := missing_files(files, tables):
        raise _error(missing)
    checked = [file for name in tables for file in files[name]]
    if sum(size for *_, size in _versions(checked)) <= MOST_CHECKED:
        check_written(checked)


def check_written(files: Iterable[str]) -> None:
    """Check that files are unchanged since their writing; a process reads each once.

    Raises:
        StoreDamagedError: a file has changed.
    """
    flipped = [
        (file, FLIPPED)
        for file, inode, time_ns, _ in _versions(files)
        if _is_flipped(file, inode, time_ns)
    ]
    if flipped:
        raise _error(flipped)


def _versions(files: Iterable[str]) -> Iterator[tuple[str, int, int, int]]:
    """Yield path, inode, modification time and size of the existing files."""
    for file in files:
        with contextlib.suppress(FileNotFoundError):  # swept since the listing
            stat = os.stat(file)  # noqa: PTH116 - for each file of the store, and half the time
            yield file, stat.st_ino, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=100_000)
def _is_flipped(file: str, inode: int, time_ns: int) -> bool:  # noqa: ARG001 - the key of the cache
    return is_flipped(file)


def in_memory(*, threads: int | None = 1) -> duckdb.DuckDBPyConnection:
    """Return a DuckDB connection that never uses the network."""
    limit: dict[str, Any] = {} if threads is None else {"threads": threads}
    return duckdb.connect(":memory:", config={**_OFFLINE, **limit})


def past_signals(action: Callable[[], _T], connection: duckdb.DuckDBPyConnection) -> _T:
    """Run an action on DuckDB so that exceptions of signal handlers reach the caller.

    In the main thread DuckDB runs the handlers itself and turns their exceptions into
    ``RuntimeError: Query interrupted``, so a cancelled flow run would count as failed. The action
    therefore runs in another thread, and a signal interrupts the query.
    """
    if threading.current_thread() is not threading.main_thread():
        return action()
    with ThreadPoolExecutor(max_workers=1) as executor:
        try:
            return executor.submit(action).result()
        except BaseException as error:
            if not isinstance(error, Exception):
                connection.interrupt()
            raise


def find_damaged(files: Iterable[str]) -> list[tuple[str, str]]:
    """Return (path, reason) of each file that has changed or cannot be read completely."""
    damaged = []
    with in_memory() as connection:
        for file in files:
            try:
                if is_flipped(file):
                    damaged.append((file, FLIPPED))
                    continue
                connection.execute(
                    f"SELECT bit_xor(hash(t)) FROM read_parquet([{quoted(file)}]) t"  # noqa: S608 - quoted
                ).fetchall()
            except (duckdb.Error, OSError) as error:
                damaged.append((file, str(error).splitlines()[0]))
    return damaged


def damaged_error(files: Sequence[str]) -> StoreDamagedError | None:
    """Return the error that names the damaged files; ``None`` if all are intact."""
    damaged = find_damaged(files)
    return _error(damaged) if damaged else None


def _error(damaged: Sequence[tuple[str, str]]) -> StoreDamagedError:
    named = "; ".join(f"{file} ({reason})" for file, reason in damaged[:3])
    return StoreDamagedError(
        f"{len(damaged)} file(s) of the store cannot be read: {named}. Restore them from a "
        "backup, or move their run's folders out of the store."
    )


def _footer(path: Path | str) -> bytes:
    """Return the metadata at the end of a file; empty if it is not a parquet file."""
    with Path(path).open("rb") as stream:
        end = stream.seek(0, os.SEEK_END) - _TAIL.size
        if end < 0:
            return b""
        stream.seek(end)
        length, magic = _TAIL.unpack(stream.read(_TAIL.size))
        if magic != b"PAR1" or length > end:
            return b""
        stream.seek(end - length)
        return stream.read(length)


def _place(data: bytes) -> int | None:
    """Return the position of the digest in a file's bytes; ``None`` if there is none."""
    at = data.rfind(_DIGEST_MARK)
    return None if at < 0 else at + len(_DIGEST_MARK)
