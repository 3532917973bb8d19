"""User functions, loaded by ``module:name`` or ``file.py:name``.

A configuration is as trusted as the code of the functions that it names.
"""

import difflib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any, TypeAlias

from convergence_core.errors import ConfigurationError, Problem, ProcessEnding
from tasks.functions.workers import failure_of
from tasks.version import install_command, missing_extra

UserFunction: TypeAlias = Callable[..., Any]
"""Function of the user, sync or async, with any signature."""

_IMPORT_LOCK = threading.RLock()
_OUR_FOLDERS = tuple(
    str(Path(__file__).parents[2] / name) for name in ("convergence/", "tasks/", "flows/")
)
_IMPORTS = threading.local()
"""``n`` counts the running imports of user modules in this thread."""
_SIBLINGS: dict[str, Path] = {}
"""Module next to a user's file → its folder; another folder's module replaces it."""


def load_function(path: str, base_dir: Path, *, key: str) -> UserFunction:
    """Import ``module:name`` or ``path/to/file.py:name``.

    It can import modules in the folder of the file or of the configuration.

    Args:
        path: Function as the configuration names it.
        base_dir: Base of relative paths.
        key: Configuration key, for errors.

    Raises:
        ConfigurationError: it cannot be imported or is not a function; with file and line if
            known.
    """
    source, _, name = path.rpartition(":")
    with _IMPORT_LOCK:
        if source.endswith(".py"):
            module = _load_file(Path(os.path.realpath(Path(base_dir, source))), path, key)
        else:
            with _importable(base_dir.resolve()):
                module = _guarded(lambda: importlib.import_module(source), path, key, source)
        loaded: UserFunction = _guarded(
            lambda: _attribute(module, name, path, key), path, key, source
        )
    return loaded


class ImportedScriptError(ConfigurationError):
    """Error of a module that starts an optimization on import."""


def refuse_while_importing() -> None:
    """Raise if a module starts a run while it is being imported, e.g. for one of its functions.

    Raises:
        ImportedScriptError: this thread is importing a user's module.
    """
    if getattr(_IMPORTS, "n", 0):
        rule = "must not start an optimization when imported"
        raise ImportedScriptError.of("", rule, _MAIN_GUARD)


_MAIN_GUARD = 'Put the call under `if __name__ == "__main__":`.'


def resolve(function: UserFunction | str, base_dir: Path, *, key: str) -> UserFunction:
    """Return a function given as a callable, ``module:name`` or ``module.name``.

    Raises:
        ConfigurationError: there is no such function.
    """
    if not isinstance(function, str):
        return function
    if ":" not in function:
        module, _, name = function.rpartition(".")
        function = f"{module}:{name}"
    return load_function(function, base_dir, key=key)


def _load_file(file: Path, path: str, key: str) -> object:
    # Not `Path.is_file`, which raises if a name is too long.
    if not os.path.isfile(file):  # noqa: PTH113 - as above
        fix = f"There is no file {file}; paths start from the configuration's folder."
        raise ConfigurationError.of(key, "must name a file that exists", fix, value=repr(path))
    # The name includes the content's hash, so an edited file is another module.
    digest = hashlib.sha256(str(file).encode() + b"\0" + file.read_bytes()).hexdigest()[:16]
    module_name = f"convergence_user_{file.stem}_{digest}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    loader = _FromSource(module_name, str(file))
    spec = importlib.util.spec_from_file_location(module_name, file, loader=loader)
    assert spec is not None  # noqa: S101 - a loader is given
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        with _importable(file.parent):
            _guarded(lambda: loader.exec_module(module), path, key, str(file))
    except ConfigurationError:
        del sys.modules[module_name]
        raise
    return module


class _FromSource(importlib.machinery.SourceFileLoader):
    """Loader that compiles a file's current source.

    Python identifies cached bytecode by the source's size and modification time in seconds, so it
    would miss a second edit within a second. No bytecode is written either, since the folder is
    the user's.
    """

    def get_code(self, _fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Put a folder first on the import path, and move it to the end on exit.

    It stays there so that imports inside functions also work.
    """
    for name, seen in list(_SIBLINGS.items()):
        if seen != folder and (folder / f"{name}.py").exists():
            sys.modules.pop(name, None)
            del _SIBLINGS[name]
    text = str(folder)
    before = set(sys.modules)
    sys.path.insert(0, text)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(text)
        if text not in sys.path:
            sys.path.append(text)
        for name in set(sys.modules) - before:
            if (folder / f"{name}.py").exists():
                _SIBLINGS[name] = folder


def _guarded(load: Callable[[], Any], path: str, key: str, source: str) -> Any:
    _IMPORTS.n = getattr(_IMPORTS, "n", 0) + 1
    try:
        return load()
    except ImportedScriptError as error:
        raise ConfigurationError([_script_problem(error, path, key)]) from error
    except (ConfigurationError, KeyboardInterrupt, ProcessEnding):
        raise
    except BaseException as error:
        raise ConfigurationError([import_problem(error, path, key, source)]) from error
    finally:
        _IMPORTS.n -= 1


def _script_problem(error: ImportedScriptError, path: str, key: str) -> Problem:
    frames = traceback.extract_tb(error.__traceback__)
    at = next((f for f in reversed(frames) if _is_users(f.filename)), None)
    return Problem(
        key=key,
        rule="must be importable without starting an optimization",
        value=repr(path),
        fix=_MAIN_GUARD,
        file=None if at is None else at.filename,
        line=None if at is None else at.lineno,
    )


def _is_users(file: str) -> bool:
    return not file.startswith(_OUR_FOLDERS) and "importlib" not in file


def import_problem(error: BaseException, path: str, key: str, source: str = "") -> Problem:
    """Return the problem of a failed import.

    Args:
        error: Exception of the import.
        path: Configuration value that caused the import.
        key: Configuration key of ``path``.
        source: Module or file that ``path`` names; empty if it names none.
    """
    if isinstance(error, ModuleNotFoundError) and error.name == source.split(".", maxsplit=1)[0]:
        return Problem(
            key=key,
            rule="must name a module that can be imported",
            value=repr(path),
            fix=f"There is no module {error.name!r}; write `{error.name}.py:…` for a file beside "
            "the configuration, or install the package.",
        )
    if missing := missing_extra(error):
        rule = f"needs the package {missing[0]}, which is not installed"
        fix = f"Run {install_command(missing[1])}."
        return Problem(key=key, rule=rule, value=repr(path), fix=fix)
    frames = traceback.extract_tb(error.__traceback__)
    users = [f for f in frames if f.filename != __file__ and "importlib" not in f.filename]
    at: Any = error if isinstance(error, SyntaxError) else users[-1] if users else None
    return Problem(
        key=key,
        rule=f"must be importable; importing it raised {type(error).__name__}: "
        + " ".join(failure_of(error).message.split()),
        value=repr(path),
        fix="Fix the module, then run `convergence validate`.",
        file=None if at is None else at.filename,
        line=None if at is None else at.lineno,
    )


def _attribute(module: object, name: str, path: str, key: str) -> UserFunction:
    member: object = module
    for part in name.split("."):
        if not hasattr(member, part):
            near = difflib.get_close_matches(part, [n for n in dir(member) if n[0] != "_"], n=1)
            hint = f"Did you mean `{near[0]}`?" if near else "Check the name after the colon."
            rule = "must name something the module has"
            raise ConfigurationError.of(key, rule, hint, value=repr(path))
        member = getattr(member, part)
    if not callable(member):
        fix, value = (
            "Name a `def` or `async def` of the module.",
            f"{path!r}, a {type(member).__name__}",
        )
        raise ConfigurationError.of(key, "must name a function", fix, value=value)
    return member


def arguments_of(function: UserFunction) -> Mapping[str, inspect.Parameter] | None:
    """Return a function's arguments; ``None`` if it has no signature, like some builtins."""
    try:
        return inspect.signature(function).parameters
    except Exception:  # noqa: BLE001 - a user's object may raise anything
        return None


def is_async(function: UserFunction) -> bool:
    """Return whether calling the function returns an awaitable."""
    while isinstance(function, functools.partial):
        function = function.func
    try:
        return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - a callable object may be async
        )
    except Exception:  # noqa: BLE001 - as above
        return False


def describe(function: UserFunction) -> str:
    """Return a short name of a function for messages and requests."""
    try:
        module, name = function.__module__, function.__qualname__
    except Exception:  # noqa: BLE001 - a user's object may have neither, and raise anything
        module, name = None, None
    return f"{module or type(function).__module__}:{name or type(function).__qualname__}"
