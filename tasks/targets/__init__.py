"""Targets: a Python function, an HTTP endpoint, or a chat model, made from a configuration."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import ConfigurationError, Problem
from convergence_core.ports import Target
from tasks.functions.user_functions import UserFunction, describe, load_function, resolve
from tasks.inputs.environment import Environment
from tasks.targets.function import FunctionTarget, make_function_target

if TYPE_CHECKING:
    from tasks.inputs.loader import Loaded

_FUNCTION = "api.function"


def make_target(
    loaded: "Loaded",
    world: Environment | None = None,
    *,
    local_function: UserFunction | str | None = None,
) -> Target:
    """Return what a configuration optimizes.

    Variables of the environment are read when they are used; ``check_environment`` of
    ``tasks.http.authentication`` tells beforehand which are not set.

    Args:
        loaded: the configuration and its files.
        world: keys, prices, and where chat models really are; ``None``: the environment's.
        local_function: a function to call in place of ``api.function``.

    Raises:
        ConfigurationError: the function cannot be imported or called.
    """
    api = loaded.configuration.api
    workers = loaded.configuration.optimization.execution.parallel_workers
    world = world or Environment.unchecked(loaded.configuration)
    if world.mock_url is not None and api.kind not in CHAT_KINDS:
        raise ConfigurationError(
            [Problem(key="api.kind", rule="must be a chat model to be run offline", value=api.kind,
                     fix="Leave out `--offline`: functions and endpoints of your own are asked "
                     "as they are.")]
        )  # fmt: skip
    if api.kind == "function":
        return _function_target(loaded, world, local_function, workers)
    if api.kind == "http":
        from tasks.targets.endpoint import HttpTarget  # noqa: PLC0415 - brings httpx

        return HttpTarget(
            api,
            templates=loaded.templates,
            secrets=world.secrets,
            workers=workers,
            prices=world.prices,
        )
    from tasks.targets.chat import ChatTarget  # noqa: PLC0415 - brings httpx

    return ChatTarget(
        loaded.configuration,
        templates=loaded.templates,
        secrets=world.secrets,
        workers=workers,
        prices=world.prices,
        mock_url=world.mock_url,
    )


def _function_target(
    loaded: "Loaded", world: Environment, given: UserFunction | str | None, workers: int
) -> FunctionTarget:
    api = loaded.configuration.api
    if given is not None:
        function = resolve(given, loaded.base_dir, key="local_function")
        path = given if isinstance(given, str) and ":" in given else None
    elif api.function is not None:
        function, path = load_function(api.function, loaded.base_dir, key=_FUNCTION), api.function
    else:
        raise ConfigurationError(
            [Problem(key=_FUNCTION, rule="is required", value="",
                     fix="Pass `local_function=` as when the run began, or write `function:`.")]
        )  # fmt: skip
    process_path = None
    if api.workers == "processes":
        process_path = path or importable_path(function)
    known = {*loaded.configuration.search_space.parameters}
    for case in loaded.cases:
        if isinstance(case.input, dict):
            known |= case.input.keys()
    return make_function_target(
        function,
        known=known,
        workers=workers,
        timeout_s=api.request.timeout_seconds,
        key=_FUNCTION,
        process_path=process_path,
        base_dir=loaded.base_dir,
        name=path,
        prices=world.prices,
    )


def importable_path(function: UserFunction) -> str:
    """Return how another process finds a function: ``module:name`` or ``file.py:name``.

    Raises:
        ConfigurationError: it has no such name, e.g. a lambda.
    """
    name = getattr(function, "__qualname__", "<")
    module = getattr(function, "__module__", None)
    if module is None or "<" in name:
        raise ConfigurationError(
            [Problem(key="api.workers", rule="must be `threads` for a function without an importable name",
                     value=describe(function),
                     fix="Define it by `def` at the top of a module, or write `workers: threads`.")]
        )  # fmt: skip
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is not None and (module == "__main__" or module.startswith("convergence_user_")):
        return f"{Path(file).resolve()}:{name}"
    return f"{module}:{name}"
