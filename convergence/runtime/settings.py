"""Settings of a system at run time, as callers give them."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from convergence.compat.runtime_settings import translated
from convergence_core.errors import ConfigurationError, Problem
from tasks.serving.settings import RewardMetric, RuntimeArm, RuntimeConfig

__all__ = ["RewardMetric", "RuntimeArm", "RuntimeConfig", "checked_settings"]


def checked_settings(
    system: str, config: RuntimeConfig | Mapping[str, Any] | None
) -> RuntimeConfig:
    """Return settings as given, checked.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    if isinstance(config, RuntimeConfig):
        values: dict[str, Any] = config.model_dump()
    else:
        values, problems = translated(config or {})
        if problems:
            raise ConfigurationError(problems)
    if values.setdefault("system", system) != system:
        problem = Problem(
            key="system",
            rule="must be the name that is configured",
            value=str(values["system"]),
            fix=f"Write `{system}`, or leave it out.",
        )
        raise ConfigurationError([problem])
    try:
        return RuntimeConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigurationError(
            [
                Problem(
                    key=".".join(str(part) for part in found["loc"]),
                    rule=found["msg"][:1].lower() + found["msg"][1:],
                    value=repr(found["input"])[:80],
                    fix=f"Known settings: {', '.join(sorted(RuntimeConfig.model_fields))}.",
                )
                for found in error.errors()
            ]
        ) from error
