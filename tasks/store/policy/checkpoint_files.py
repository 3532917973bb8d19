"""Files of a policy's checkpoints, and the lock of the serving process.

``STORE/policy/versions`` holds the latest versions, ``STORE/policy/saved`` named checkpoints. Each
file appears whole or not at all.
"""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from convergence_core.errors import PolicyBusyError, PolicyCheckpointError, PolicyRequestError
from tasks.store.layout import locked, make_folder, whole_file, writing

N_KEPT: Final = 3
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SUFFIX: Final = ".safetensors"


class CheckpointFiles:
    """Checkpoints of one store's policy."""

    def __init__(self, root: Path) -> None:
        """Use the folder ``policy`` of the store, creating it."""
        self.folder = root / "policy"
        self._versions, self._saved = self.folder / "versions", self.folder / "saved"
        with writing(self.folder):
            make_folder(self._versions)
            make_folder(self._saved)

    def write_version(self, version: int, data: bytes) -> None:
        """Write a version's checkpoint durably and remove all but the latest ``N_KEPT``."""
        _write(self._version(version), data)
        for path in sorted(self._versions.glob(f"*{SUFFIX}"))[:-N_KEPT]:
            path.unlink(missing_ok=True)

    def read_version(self, version: int) -> bytes:
        """Return the checkpoint of a version.

        Raises:
            PolicyCheckpointError: there is none.
        """
        return _read(self._version(version))

    def save(self, name: str, data: bytes) -> None:
        """Write a checkpoint durably under a name, replacing an earlier one.

        Raises:
            PolicyRequestError: the name is not a plain word.
        """
        _write(self._named(name), data)

    def load(self, name: str) -> bytes:
        """Return a named checkpoint.

        Raises:
            PolicyRequestError: the name is not a plain word.
            PolicyCheckpointError: there is no checkpoint of that name.
        """
        return _read(self._named(name))

    def names(self) -> list[str]:
        """Return the names of saved checkpoints, sorted."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self._saved.glob(f"*{SUFFIX}"))

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock that allows one process to serve the policy.

        Raises:
            PolicyBusyError: another process holds it.
        """
        with locked(self.folder / "serving.lock", should_wait=False) as is_alone:
            if not is_alone:
                raise PolicyBusyError(
                    f"the policy of {self.folder.parent} must be served by one process at a time, and another "
                    "one serves it or plays a round. Wait for the round, or end `convergence policy serve` for "
                    "as long as a round takes"
                )
            yield

    def _version(self, version: int) -> Path:
        return self._versions / f"{version:09d}{SUFFIX}"

    def _named(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise PolicyRequestError(
                "`name` must be a word of 1 to 64 small letters, digits, - and _, never a path, but got "
                f"{name[:80]!r}"
            )
        return self._saved / f"{name}{SUFFIX}"


def _write(path: Path, data: bytes) -> None:
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise PolicyCheckpointError(
            f"a checkpoint must be there, but {path.parent.name}/{path.name} is not. Give a name that was saved"
        ) from None
