"""Keys that are refused: what comes later, and what the original had and we replace.

One table. A key in it is never ignored: it is refused with its reason and with what to write
instead. ``unless`` holds the values that mean "off" and are therefore fine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convergence_core.config.shown import shown
from convergence_core.config.source import ConfigSource, Path
from convergence_core.errors import Problem

LATER = "is not available yet"
GONE = "is not supported"


def _is_off(value: Any) -> bool:
    """A mapping that switches its feature off counts as off whatever else it says."""
    return value is None or (isinstance(value, dict) and value.get("enabled", False) is False)


def _is_false(value: Any) -> bool:
    return value is False or value is None


def _is_only_disabled(value: Any) -> bool:
    return value is None or value == {"enabled": False}


def _never(_value: Any) -> bool:
    return False


def _is_known_place(value: Any) -> bool:
    if not isinstance(value, str) or "://" not in value:
        return True
    return value.startswith(("s3://", "gs://", "az://"))


def _is_none_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or value.lower() not in words


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused key."""

    pattern: str
    """Dotted path; ``*`` stands for any one name."""
    rule: str
    """Why, as the rule of the problem."""
    fix: str
    """What to write instead."""
    unless: Callable[[Any], bool] = _never
    """Values that are not refused."""


_REMOVE = "Remove it."
_GATEWAY = "Use `kind: openai` with a gateway's OpenAI-compatible `endpoint`, or `kind: http`."
_NO_SOCIETY = "Remove it; `society` knows `enabled`, `learning`, `rlp` and `sao`."

REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        "api.adapter_enabled",
        f"{GONE}: there are no adapters",
        "Describe the request by `api.request.body` and the answer by "
        "`api.response.result_field`, and remove it.",
        _is_false,
    ),
    Refusal(
        "api.mock_mode",
        f"{GONE} in a file: whether the built-in mock answers is said when a run starts",
        "Run `convergence optimize --offline`, and remove it.",
        _is_false,
    ),
    Refusal("api.kind", LATER, _GATEWAY, _is_none_of("anthropic")),
    Refusal(
        "api.kind",
        f"{LATER}: there is no connector",
        "Use `kind: http`, or `kind: function` with a function that calls it.",
        _is_none_of("browserbase", "agno"),
    ),
    Refusal(
        "api.auth.type",
        f"{GONE}: OAuth needs a browser",
        "Put a token into an environment variable and use `type: bearer`.",
        _is_none_of("oauth", "oauth2"),
    ),
    Refusal(
        "evaluation.test_cases.augmentation",
        f"{GONE}: altered questions keep answers that no longer fit",
        "Remove it and write more test cases.",
        _is_off,
    ),
    Refusal(
        "evaluation.metrics.*.type",
        LATER,
        "Use `type: similarity`, or `type: function` with a function of your own.",
        _is_none_of("rouge"),
    ),
    Refusal(
        "optimization.execution.experiments_per_generation",
        f"{GONE}: it had no effect",
        "Use `optimization.evolution.population_size`.",
    ),
    Refusal(
        "optimization.execution.runner",
        LATER,
        "Write `threads`, `processes`, `dask` or `ray`; a deployment's work pool may be Kubernetes'.",
        _is_none_of("kubernetes", "docker"),
    ),
    Refusal(
        "budget.cache",
        f"{GONE} here: what is used again is no limit",
        "Write `cache:` at top level, e.g. `cache: {epoch: 7d}`.",
    ),
    Refusal("society.auto_generate_agents", f"{GONE}: it had no effect", _NO_SOCIETY),
    Refusal("society.agents", f"{GONE}: it had no effect", _NO_SOCIETY),
    Refusal("society.collaboration", f"{GONE}: it had no effect", _NO_SOCIETY),
    Refusal(
        "society.rlp.both_orders",
        f"{GONE}: no channel asks for its options in two orders",
        "Remove it.",
        _is_false,
    ),
    Refusal(
        "society.rlp.use_gpu",
        f"{GONE}: the model is a server, on whatever it runs",
        "Remove it.",
        _is_false,
    ),
    Refusal(
        "society.storage",
        f"{GONE}: runs are kept in one place",
        "Use `storage.path`, or remove it.",
    ),
    Refusal("society.weave", f"{GONE}: nothing is sent to outside services", _NO_SOCIETY),
    Refusal(
        "legacy",
        f"{GONE}: every run is kept in `storage.path` and can be queried",
        "Remove it; `convergence runs` and `convergence query` show earlier runs.",
        _is_only_disabled,
    ),
    Refusal("agent", f"{LATER}: there is no connector", "Use `api.models` and `kind: http`."),
    Refusal(
        "runner",
        f"{GONE} in a file",
        "Use `optimization.evolution` (`generations`, `population_size`), `optimization.seed` and "
        "`optimization.execution.early_stopping`.",
    ),
    Refusal(
        "adapters",
        f"{GONE} in a file",
        "Use `api.request.body` and `api.response.result_field`.",
    ),
    Refusal(
        "storage.path",
        f"{LATER} for this kind of storage",
        "Write a local folder, or an address that begins with s3://, gs:// or az://.",
        _is_known_place,
    ),
    Refusal(
        "storage.backend", f"{GONE}: there is one kind of storage", "Use `storage.path` alone."
    ),
    Refusal(
        "storage.provider", f"{GONE}: there is one kind of storage", "Use `storage.path` alone."
    ),
    Refusal("storage.cache_enabled", f"{GONE}: it had no effect", _REMOVE),
)


def refuse(data: dict[str, Any], source: ConfigSource) -> tuple[list[Problem], list[Path]]:
    """Remove every refused key from ``data``; return the problems and the paths removed."""
    problems: list[Problem] = []
    paths: list[Path] = []
    for refusal in REFUSALS:
        parts = refusal.pattern.split(".")
        for holder, path in _holders(data, parts[:-1], ()):
            key = parts[-1]
            if key not in holder or refusal.unless(holder[key]):
                continue
            value = holder.pop(key)
            here = (*path, key)
            paths.append(here)
            told = shown(value, key) if not isinstance(value, dict | list) else ""
            problems.append(
                source.problem(here, refusal.rule, refusal.fix, value=told, of_key=True)
            )
    return problems, paths


def _holders(data: Any, parts: list[str], path: Path) -> list[tuple[dict[str, Any], Path]]:
    if not isinstance(data, dict):
        return []
    if not parts:
        return [(data, path)]
    names = list(data) if parts[0] == "*" else [parts[0]]
    return [
        found
        for name in names
        if name in data
        for found in _holders(data[name], parts[1:], (*path, name))
    ]
