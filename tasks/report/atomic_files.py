"""Files that appear whole or not at all, and the pointer to the latest run's."""

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from convergence_core.errors import StoreWriteError
from tasks.store.layout import create_file, keep_mode, make_folder

LATEST = "latest"
"""Link to the latest run's folder. Without links, ``latest.txt`` holds its name."""


@contextlib.contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """Open a text file for writing; it gets its name when the block succeeds.

    Only its owner can read a new file, and a replaced one keeps its mode. Lone surrogates, which
    UTF-8 cannot encode, are written as question marks.

    Raises:
        StoreWriteError: it cannot be written; an older file of that name is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        make_folder(path.parent)
        create_file(temporary)
        keep_mode(temporary, path)
        with temporary.open("w", encoding="utf-8", errors="replace", newline="") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise _write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def point_to_latest(folder: Path) -> None:
    """Point ``latest`` next to a run's folder to it, as a link or else as a text file.

    Raises:
        StoreWriteError: neither can be written.
    """
    link, note = folder.parent / LATEST, folder.parent / f"{LATEST}.txt"
    temporary = folder.parent / f".{LATEST}.{uuid.uuid4().hex}.tmp"
    try:
        temporary.symlink_to(folder.name, target_is_directory=True)
        temporary.replace(link)
    except OSError:  # no links on this file system, or a user's folder has the name
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        with atomic_text(note) as stream:
            stream.write(f"{folder.name}\n")
    else:
        with contextlib.suppress(OSError):
            note.unlink(missing_ok=True)


def _write_error(path: Path, error: OSError) -> StoreWriteError:
    why = error.strerror or str(error)
    return StoreWriteError(
        f"`output.save_path` must be a folder that can be written to, but {path} cannot be "
        f"written: {why}. Free space or permit writing there, or set another folder; the run's "
        "evaluations are kept in the store."
    )
