"""Table of refused keys: later features, and those of the-convergence 0.1.

One table. A key in it is never ignored: it is refused with its reason and with what to write
instead. ``unless`` holds the values that mean "off" and are therefore fine.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from convergence_core.config.feedback import CHECKPOINT_SIZES
from convergence_core.config.secrecy import shown
from convergence_core.config.source import ConfigSource, Path
from convergence_core.errors import Problem

LATER = "is not available yet"
GONE = "is not supported"


def _is_off(value: Any) -> bool:
    """A mapping that switches its feature off counts as off whatever else it says."""
    return value is None or (isinstance(value, dict) and value.get("enabled", False) is False)


def _is_false(value: Any) -> bool:
    return value is False or value is None


def _is_known_address(value: Any) -> bool:
    is_address = isinstance(value, str) and "://" in value
    return not is_address or value.startswith(("s3://", "gs://", "az://"))


def _is_none_of(*words: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, str) or value.lower() not in words


def _is_convex(value: Any) -> bool:
    return isinstance(value, str) and value.lower() == "convex"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One refused key."""

    pattern: str
    """Dotted path; ``*`` stands for any one name."""
    rule: str
    """Why, as the rule of the problem."""
    fix: str
    """What to write instead."""
    unless: Callable[[Any], bool] = lambda _value: False
    """Values that are not refused."""


_NO_EFFECT = f"{GONE}: it had no effect"
_NO_CONNECTOR = f"{LATER}: there is no connector"
_CONVEX_FIX = (
    "Keep the tables in `storage.path`, a folder or object storage, and share the journal between "
    "machines by PostgreSQL: `storage: {journal: ${JOURNAL_URL}}`."
)
_NO_SOCIETY = "Remove it; `society` knows `enabled`, `auto_generate_agents`, `learning`, `rlp`, `sao` and `games`."

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
        _NO_EFFECT,
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
    *(Refusal(f"society.{key}", _NO_EFFECT, _NO_SOCIETY) for key in ("agents", "collaboration")),
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
    Refusal(
        "society.weave",
        f"{GONE} there: spans of calls go to any collector",
        "Write `telemetry: {endpoint: https://trace.wandb.ai/otel/v1/traces}`, and its key into the "
        "variable OTEL_EXPORTER_OTLP_HEADERS.",
    ),
    *(
        Refusal(
            f"feedback.training.{key}",
            f"{GONE}: sizes of the network belong to the checkpoint, whose weights fit no others",
            "Remove it, or name another checkpoint by `feedback.training.base_model_path`.",
        )
        for key in CHECKPOINT_SIZES
    ),
    Refusal(
        "legacy",
        f"{GONE}: every run is kept in `storage.path` and can be queried",
        "Remove it; `convergence runs` and `convergence query` show earlier runs.",
        lambda value: value is None or value == {"enabled": False},
    ),
    Refusal("agent", _NO_CONNECTOR, "Use `api.models` and `kind: http`."),
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
        _is_known_address,
    ),
    *(
        Refusal(
            key,
            f"{GONE}: Convex is not written to",
            _CONVEX_FIX,
            lambda value: not _is_convex(value),
        )
        for key in ("storage", "storage.backend", "storage.provider")
    ),
    *(
        Refusal(
            key, f"{GONE}: there is one kind of storage", "Use `storage.path` alone.", _is_convex
        )
        for key in ("storage.backend", "storage.provider")
    ),
    Refusal("storage.cache_enabled", _NO_EFFECT, "Remove it."),
)


def refuse(data: dict[str, Any], source: ConfigSource) -> tuple[list[Problem], list[Path]]:
    """Remove every refused key from ``data``; return the problems and the paths removed."""
    problems: list[Problem] = []
    paths: list[Path] = []
    for refusal in REFUSALS:
        *above, key = refusal.pattern.split(".")
        for holder, path in _holders(data, above, ()):
            if key in holder and not refusal.unless(holder[key]):
                value = holder.pop(key)
                text = "" if isinstance(value, dict | list) else shown(value, key)
                paths.append((*path, key))
                problems.append(
                    source.problem(paths[-1], refusal.rule, refusal.fix, value=text, of_key=True)
                )
    return problems, paths


def _holders(data: Any, parts: list[str], path: Path) -> list[tuple[dict[str, Any], Path]]:
    if not isinstance(data, dict):
        return []
    if not parts:
        return [(data, path)]
    return [
        found
        for name in (list(data) if parts[0] == "*" else parts[:1])
        if name in data
        for found in _holders(data[name], parts[1:], (*path, name))
    ]
