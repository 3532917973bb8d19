"""Files of adapters: each version's folder appears whole or not at all.

::

    adapters/<version>/adapter_config.json           its PEFT settings
    adapters/<version>/adapter_model.safetensors     its weights
    training/<round_id>/                             checkpoints, until a user is forgotten
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from convergence_core.errors import AdapterRefusedError
from tasks.store.layout import FILE_MODE, locked, make_folder, sync_folder, temporary_name, writing

CONFIG_FILE: Final = "adapter_config.json"
WEIGHTS_FILE: Final = "adapter_model.safetensors"
ADAPTER_FILES: Final = (CONFIG_FILE, WEIGHTS_FILE)
_CHUNK = 1 << 20


def adapters_folder(root: Path) -> Path:
    """Return the folder of all adapters of a store."""
    return root / "adapters"


def adapter_folder(root: Path, version: str) -> Path:
    """Return the folder of an adapter, which need not exist."""
    return adapters_folder(root) / version


def training_folder(root: Path) -> Path:
    """Return the folder of the training rounds' checkpoints."""
    return root / "training"


def version_prefix(role: str) -> str:
    """Return the version prefix of a role's adapters, which is safe in paths and URLs."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", role)[:60]


def next_version(role: str, known: Iterator[str]) -> str:
    """Return the next version of a role; numbers only rise."""
    prefix, last = version_prefix(role), 0
    for version in known:
        before, _, number = version.rpartition("-")
        if before == prefix and number.isdecimal():
            last = max(last, int(number))
    return f"{prefix}-{last + 1:04d}"


def folder_sha256(folder: Path) -> str:
    """Return the SHA-256 of an adapter's two files, each with its name and length.

    Raises:
        AdapterRefusedError: one is missing, or is not a plain file.
    """
    total = hashlib.sha256()
    for name in ADAPTER_FILES:
        with open_plain(folder / name) as descriptor:
            size = os.fstat(descriptor).st_size
            total.update(f"{name}\0{size}\0".encode())
            while chunk := os.read(descriptor, _CHUNK):
                total.update(chunk)
    return total.hexdigest()


@contextlib.contextmanager
def open_plain(path: Path) -> Iterator[int]:
    """Open a plain file for reading without following links, and yield its descriptor.

    Raises:
        AdapterRefusedError: the file is missing, a link or not a plain file.
    """
    problem, descriptor = "", -1
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            problem = "not a plain file"
    except OSError as error:
        problem = "a link" if path.is_symlink() else (error.strerror or str(error)).lower()
    if problem:
        if descriptor >= 0:
            os.close(descriptor)
        raise AdapterRefusedError(
            f"an adapter must hold {' and '.join(ADAPTER_FILES)} as plain files, but {path.name} is: "
            f"{problem}. Train it again, or name the folder that PEFT has saved."
        )
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def adapters_lock(root: Path) -> Iterator[None]:
    """Hold the lock for creating and removing folders of adapters."""
    folder = adapters_folder(root)
    with writing(folder):
        make_folder(folder)
    with locked(folder / ".lock"):
        yield


@contextlib.contextmanager
def copied_in(root: Path, source: Path) -> Iterator[Path]:
    """Copy an adapter's files durably into a store under a temporary name and yield the folder.

    The caller holds the lock. The function removes the folder if the block leaves its name
    unchanged, and temporary folders that a killed process has left.

    Raises:
        AdapterRefusedError: a file is missing, or is not a plain file.
        StoreWriteError: the files cannot be written.
    """
    folder = adapters_folder(root)
    with writing(folder):
        for old in folder.glob(".*.tmp"):
            shutil.rmtree(old)
    temporary = temporary_name(folder / "candidate")
    try:
        with writing(temporary):
            make_folder(temporary)
            for name in ADAPTER_FILES:
                with open_plain(source / name) as descriptor, (temporary / name).open("xb") as new:
                    os.fchmod(new.fileno(), FILE_MODE)
                    while chunk := os.read(descriptor, _CHUNK):
                        new.write(chunk)
                    new.flush()
                    os.fsync(new.fileno())
            sync_folder(temporary)
        yield temporary
    finally:
        with writing(temporary):
            if temporary.exists():
                shutil.rmtree(temporary)


def give_version(root: Path, temporary: Path, version: str) -> None:
    """Rename a copied folder durably to its version; the caller holds the lock.

    A folder of that name is left from a killed registration. No row names it, so it is removed.
    """
    final = adapter_folder(root, version)
    with writing(final):
        if final.exists():
            shutil.rmtree(final)
        temporary.rename(final)
        sync_folder(final.parent)


def remove_folders(root: Path, versions: list[str]) -> int:
    """Remove the existing folders of adapters; return their number."""
    folders = [
        folder for version in versions if (folder := adapter_folder(root, version)).is_dir()
    ]
    with writing(root):
        for folder in folders:
            shutil.rmtree(folder)
        if folders:
            sync_folder(adapters_folder(root))
    return len(folders)


def remove_checkpoints(root: Path) -> None:
    """Remove the folders of all training rounds, since they hold training prompts."""
    folder = training_folder(root)
    with writing(folder):
        if folder.is_dir():
            shutil.rmtree(folder)
            sync_folder(root)
