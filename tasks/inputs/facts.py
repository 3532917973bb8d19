"""Facts of a run: hashes of code and data that affect its rewards.

Facts are the hash of each user's Python file that the configuration names, and the data hashes of
the target's module: each of its functions without arguments whose name ends in ``_sha256`` is
called once. Rewards of runs with different facts are not comparable.
"""

import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from convergence_core.config import Configuration
from convergence_core.config.evaluation import UserFunctionMetric
from convergence_core.errors import ConfigurationError
from tasks.functions.user_functions import load_function

_SUFFIX = "_sha256"


def facts_of(configuration: Configuration, base_dir: Path) -> dict[str, str]:
    """Return the facts by name.

    Raises:
        ConfigurationError: the target's module cannot be imported, or its hash cannot be computed.
    """
    facts = {
        f"sha256 of {source}": hashlib.sha256((base_dir / source).read_bytes()).hexdigest()
        for source in _files(configuration)
        if (base_dir / source).is_file()
    }
    function = configuration.api.function
    if function is not None:
        module = getattr(load_function(function, base_dir, key="api.function"), "__module__", "")
        for name, hash_function in _hash_functions(module):
            facts[name] = _hash_of(name, hash_function)
    return dict(sorted(facts.items()))


def _files(configuration: Configuration) -> Iterator[str]:
    evaluation = configuration.evaluation
    functions = [m for m in evaluation.metrics.values() if isinstance(m, UserFunctionMetric)]
    paths = [configuration.api.function, *(metric.function for metric in functions)]
    for path in paths:
        source = (path or "").rpartition(":")[0]
        if source.endswith(".py"):
            yield source


def _hash_functions(module_name: str) -> Iterator[tuple[str, Callable[[], object]]]:
    module = sys.modules.get(module_name)
    for name, value in sorted(vars(module).items()) if module is not None else ():
        is_hash = name.endswith(_SUFFIX) and not name.startswith("_")
        is_own = inspect.isfunction(value) and value.__module__ == module_name
        if is_hash and is_own and not inspect.signature(value).parameters:
            yield name, value


def _hash_of(name: str, function: Callable[[], object]) -> str:
    try:
        return str(function())
    except Exception as error:
        rule, value = (
            f"its module's `{name}()` must return a hash",
            f"{type(error).__name__}: {error}",
        )
        fix = "Fix it, or rename it."
        raise ConfigurationError.of("api.function", rule, fix, value=value) from error
