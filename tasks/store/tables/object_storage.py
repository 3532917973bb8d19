"""Tables on object storage: S3, Google Cloud Storage or Azure.

A folder that is bound to an address is the working copy of the store at that address. A published
file goes to the address before it gets its local name, so every visible local file exists at the
address. PUT is atomic, and with If-None-Match it never replaces.

The remote name of a generation's file contains its SHA-256, so no late write can replace it. A
small object, ``live/generations/<run>/g00012.json``, names these files and is written last: it
commits the generation, and readers take only the files that it names. A process that finds it with
other files has lost the run to another process and stops. The files of a finished run in ``final``
may be replaced until its row is written there. A live run's row is replaced as the run continues.

Journal, runtime state and leases need locks and changes in place, which object storage lacks. They
stay in the folder, or go to PostgreSQL.

``obstore`` reads the credentials from the environment (``AWS_ACCESS_KEY_ID``,
``GOOGLE_SERVICE_ACCOUNT``, ``AZURE_STORAGE_ACCOUNT_NAME`` and so on). None is stored.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from convergence_core.errors import StoreError, StoreFormatError, StoreWriteError
from tasks.store.layout import (
    MARKER_FILE,
    PART_FILE,
    RUN_FILE,
    check_marker,
    ensure_store,
    make_folder,
    whole_file,
    writing,
)
from tasks.store.tables.tables import GENERATIONS, RUNS
from tasks.version import install_command

_ENDPOINTS: Final = {
    "s3://": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs://": ("GOOGLE_BASE_URL",),
    "az://": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""URL scheme → variables with a private endpoint."""
BINDING: Final = "remote.json"
"""File in a store's folder with the address whose working copy it is."""
_STAGES: Final = ("live/", "final/")
_PARQUET: Final = ".parquet"
_COMMIT: Final = ".json"


def bind(root: Path, url: str) -> None:
    """Make a store's folder the working copy of an address, unless it is already.

    Raises:
        StoreFormatError: it is the working copy of another address.
        StoreWriteError: the folder cannot be written.
    """
    address = bound_to(root)
    if address == url:
        return
    if address is not None:
        raise StoreFormatError(
            f"{root} is the working copy of {address}, but `storage.path` is {url}. Set "
            "`storage.local` to another folder."
        )
    ensure_store(root)
    with whole_file(root / BINDING) as temporary:
        temporary.write_text(json.dumps({"url": url}) + "\n", encoding="utf-8")


def bound_to(root: Path) -> str | None:
    """Return the address whose working copy a store's folder is; ``None`` if there is none.

    Raises:
        StoreFormatError: the file with the address cannot be read.
    """
    path = root / BINDING
    try:
        return str(json.loads(path.read_text("utf-8"))["url"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreFormatError(
            f'{path} must hold {{"url": "s3://…"}}, but it does not. Write `storage.path` into it.'
        ) from error


def mirror_of(root: Path) -> "Mirror | None":
    """Return the mirror of a store's address; ``None`` if it has none."""
    url = bound_to(root)
    return None if url is None else Mirror(root, url)


class Mirror:
    """Transfer of files between a folder and its address. Thread-safe."""

    def __init__(self, root: Path, url: str) -> None:
        self.url = url
        self._root = root
        self._client: Any = None

    def put(self, written: Path, final: Path) -> None:
        """Publish a file at the address.

        Args:
            written: path of its content.
            final: final path in the folder.

        Raises:
            StoreWriteError: the file may be missing there, or another process has committed
                instead.
        """
        data = written.read_bytes()
        with self._talking(self._key(final)):
            if final.name == RUN_FILE:
                self._store.put(self._key(final), data, use_multipart=False)
            elif not _is_live(self._key(final)):
                self._put_final(final, data)
            else:
                self._create(self._named(final, _digest(data)), data)
                if self._is_marker(final):
                    self._commit(final, _digest(data))

    def drop(self, path: Path) -> None:
        """Delete a file at the address if it exists.

        Raises:
            StoreWriteError: it may still exist there.
        """
        key = self._key(path)
        with self._talking(key):
            if _is_live(key) and path.name != RUN_FILE:
                folder, _, name = key.rpartition("/")
                stem = f"{folder}/{name.removesuffix(_PARQUET)}."
                self._delete(path for path in self._below(folder) if path.startswith(stem))
            else:
                self._delete([key])

    def drop_folder(self, folder: Path) -> None:
        """Delete all objects of a folder at the address, including uncommitted ones.

        Raises:
            StoreWriteError: some may still exist there.
        """
        key = self._key(folder)
        with self._talking(key):
            self._delete(self._below(key))

    def pull(self) -> int:
        """Fetch committed files that are missing here, markers last; return their number.

        Raises:
            StoreWriteError: the address cannot be read, or the folder cannot be written.
        """
        n_fetched = 0
        with self._talking(""):
            self._greet()
            keys = (key for stage in _STAGES for key in self._below(stage))
            for key in sorted(keys, key=self._order):
                if key.endswith(_COMMIT):
                    n_fetched += self._fetch_generation(key)
                elif not _is_live(key) or key.endswith(RUN_FILE):
                    n_fetched += self._fetch(key, self._root / key)
        return n_fetched

    # -- generations at the address

    def _commit(self, marker: Path, digest: str) -> None:
        """Write the object that commits a generation by naming its files."""
        run = marker.parent.name
        files = {marker.parent.parent.name: digest}
        for table in (self._root / "live").iterdir():
            part = table / run / marker.name
            if table.name not in files and part.exists():
                files[table.name] = _digest(part.read_bytes())
        text = json.dumps({"files": dict(sorted(files.items()))}) + "\n"
        self._create(self._committed_as(marker), text.encode())

    def _fetch_generation(self, commit: str) -> int:
        """Fetch the files of a missing committed generation, its marker last."""
        marker = self._root / (commit.removesuffix(_COMMIT) + _PARQUET)
        if marker.exists() or self._is_final(marker.parent.name):
            return 0
        try:
            files = json.loads(self._get(commit))["files"]
            ordered = sorted(files.items(), key=lambda entry: entry[0] == GENERATIONS.name)
            fetched = []
            for table, digest in ordered:
                path = self._root / "live" / str(table) / marker.parent.name / marker.name
                fetched.append((path, self._get(self._named(path, str(digest)))))
        except FileNotFoundError:
            return 0  # swept since the listing
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{commit} names no files") from error
        return sum(self._write(path, data) for path, data in fetched)

    def _named(self, path: Path, digest: str) -> str:
        """Return the key of a live run's file with this digest."""
        return f"{self._key(path).removesuffix(_PARQUET)}.{digest}{_PARQUET}"

    def _committed_as(self, marker: Path) -> str:
        return self._key(marker).removesuffix(_PARQUET) + _COMMIT

    def _create(self, key: str, data: bytes) -> None:
        """Publish an object that must not be replaced.

        Raises:
            StoreWriteError: a different object exists.
        """
        if self._put_new(key, data) != data:
            raise _outrun(f"{self.url}/{key}")

    def _put_final(self, path: Path, data: bytes) -> None:
        """Publish a file of a finished run."""
        key = self._key(path)
        if self._put_new(key, data) == data:
            return
        if self._is_marker(path) or self._has_ended(path):
            raise _outrun(f"{self.url}/{key}")
        # Left unread by an earlier attempt that did not reach the run's row.
        self._store.put(key, data, use_multipart=False)

    def _put_new(self, key: str, data: bytes) -> bytes:
        """Publish an object where none is; return the content that the address has then."""
        import obstore.exceptions  # noqa: PLC0415 - an extra

        try:
            self._store.put(key, data, mode="create", use_multipart=False)
        except obstore.exceptions.AlreadyExistsError:
            return self._get(key)
        return data

    def _has_ended(self, path: Path) -> bool:
        """Return whether the run of a file in ``final`` is finished at the address."""
        row = self._root / "final" / RUNS.name / path.parent.name / PART_FILE
        try:
            self._store.head(self._key(row))
        except FileNotFoundError:
            return False
        return True

    # -- helpers

    def _greet(self) -> None:
        """Check that this version can read the store at the address, or create one there."""
        stored = self._put_new(MARKER_FILE, (self._root / MARKER_FILE).read_bytes())
        check_marker(stored.decode("utf-8", "replace"), f"{self.url}/{MARKER_FILE}")

    @property
    def _store(self) -> Any:
        if self._client is None:
            self._client = _connect(self.url)
        return self._client

    def _key(self, path: Path) -> str:
        return path.relative_to(self._root).as_posix()

    def _below(self, prefix: str) -> Iterator[str]:
        for batch in self._store.list(prefix=prefix):
            yield from (str(entry["path"]) for entry in batch)

    def _delete(self, keys: Iterable[str]) -> None:
        """Delete objects, commit markers first."""
        for key in sorted(keys, key=lambda key: (not key.endswith(_COMMIT), key)):
            with contextlib.suppress(FileNotFoundError):
                self._store.delete(key)

    def _get(self, key: str) -> bytes:
        return bytes(self._store.get(key).bytes())

    def _fetch(self, key: str, path: Path) -> bool:
        """Fetch a missing file, or a run's row that has changed there."""
        if path.exists() and (path.name != RUN_FILE or self._is_final(path.parent.name)):
            return False
        try:
            data = self._get(key)
        except FileNotFoundError:
            return False  # swept since the listing
        return self._write(path, data)

    def _write(self, path: Path, data: bytes) -> bool:
        """Write a local file atomically; return whether its content is new."""
        if path.exists() and path.read_bytes() == data:
            return False
        with writing(path):
            make_folder(path.parent)
        with whole_file(path) as temporary:
            temporary.write_bytes(data)
        return True

    def _is_final(self, run_folder: str) -> bool:
        return (self._root / "final" / RUNS.name / run_folder / PART_FILE).exists()

    def _is_marker(self, path: Path) -> bool:
        return path.parent.parent.name in {GENERATIONS.name, RUNS.name}

    def _order(self, key: str) -> tuple[int, str]:
        """Sort tables before generations and generations before runs: commit markers last."""
        table = key.split("/")[1] if key.count("/") > 1 else ""
        return ({GENERATIONS.name: 1, RUNS.name: 2}.get(table, 0), key)

    @contextmanager
    def _talking(self, key: str) -> Iterator[None]:
        """Turn a client error into ours, which shows no credential."""
        import obstore.exceptions  # noqa: PLC0415 - an extra

        try:
            yield
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            where = f"{self.url}/{key}" if key else self.url
            raise StoreWriteError(
                f"cannot use the store at {where}: {_error_line(error)}. Check the address, the network "
                "and the credentials in the environment. Nothing that was paid or published is "
                "lost; `convergence resume` continues from there."
            ) from error


def _is_live(key: str) -> bool:
    return key.startswith("live/")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _outrun(where: str) -> StoreWriteError:
    return StoreWriteError(
        f"another process has published {where} meanwhile, so this one cannot continue the run. "
        "What it has published is whole; `convergence resume` continues from there."
    )


def check_installed() -> None:
    """Check that object storage can be used.

    Raises:
        StoreError: the extra is not installed.
    """
    try:
        import obstore  # noqa: F401, PLC0415 - an extra
    except ImportError as error:
        raise StoreError(
            "object storage needs the package obstore: " + install_command("objects")
        ) from error


def _connect(url: str) -> Any:
    check_installed()
    from obstore.store import from_url  # noqa: PLC0415 - an extra

    # Private services may use plain HTTP; a named endpoint is intended.
    scheme = url[: url.index("://") + 3]
    endpoint = next(filter(None, map(os.environ.get, _ENDPOINTS[scheme])), "")
    if endpoint.startswith("http://"):
        return from_url(url, client_options={"allow_http": True})
    return from_url(url)


def _error_line(error: BaseException) -> str:
    """Return the first line of an error, without URL queries, which may hold a signature."""
    return re.sub(r"\?[^\s)\"']+", "", str(error).split("\n", 1)[0])
