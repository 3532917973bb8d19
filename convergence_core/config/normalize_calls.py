"""``api.auth``, ``cache``, ``llm`` as people write them → the one form of the models.

As in ``normalize``, every value may still be of any type.
"""

from typing import Any

from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.budget import provider_of
from convergence_core.config.normalized import Normalized, mapping_at
from convergence_core.config.source import Path

_KEY_HEADERS = {"azure": "api-key", "gemini": "x-goog-api-key"}
"""Headers in which providers of their own form take keys."""
_PLACE = ("endpoint", "api_key_env")
"""Keys of ``llm`` that belong together: a key is for one endpoint."""


def read_auth(n: Normalized) -> None:
    """Choose the kind's own way to send a key where only the key's variable is written."""
    api = mapping_at(n.data, "api")
    auth, kind = mapping_at(api, "auth"), api.get("kind")
    if not isinstance(kind, str) or kind not in CHAT_KINDS:
        return
    if auth.get("type") is None and auth.get("token_env") is not None:
        is_own = kind == "azure" or (kind == "gemini" and api.get("protocol") == "native")
        auth["type"] = "api_key" if is_own else "bearer"
    if auth.get("type") == "api_key" and auth.get("header_name") is None and kind in _KEY_HEADERS:
        auth["header_name"] = _KEY_HEADERS[kind]


def read_cache(n: Normalized) -> None:
    """Read a plain value as the epoch, and the ``off`` of YAML 1.1, which is ``false``."""
    cache = n.data.get("cache")
    if isinstance(cache, str | int | float):
        cache = n.data["cache"] = {"epoch": cache}
        n.renamed[("cache", "epoch")] = ("cache",)
    if isinstance(cache, dict) and cache.get("epoch") is False:
        cache["epoch"] = "off"


def read_llms(n: Normalized) -> None:
    """Read ``society.llm`` as ``llm``, and complete the judges' own ``llm`` from it."""
    society = mapping_at(n.data, "society")
    written = society.get("llm")
    if written is None:
        society.pop("llm", None)
    elif n.data.get("llm") is not None:
        rule = "must not stand beside `llm`, which means the same"
        n.refuse(society, ("society", "llm"), rule, "Remove one of them.")
    else:
        n.data["llm"] = society.pop("llm")
        n.renamed[("llm",)] = ("society", "llm")
    general = n.data.get("llm")
    if isinstance(general, dict):
        n.rename(general, ("llm",), "base_url", "endpoint")
    for name, metric in mapping_at(n.data, "evaluation", "metrics").items():
        own = metric.get("llm") if isinstance(metric, dict) else None
        if not isinstance(own, dict):
            continue
        path: Path = ("evaluation", "metrics", name, "llm")
        n.rename(own, path, "base_url", "endpoint")
        if isinstance(general, dict):
            _complete(n, own, general, path)


def _complete(n: Normalized, own: dict[str, Any], general: dict[str, Any], path: Path) -> None:
    """Take the keys that are not written from the general ``llm``; a key stays with its endpoint."""
    is_elsewhere = own.get("endpoint") is not None
    model = own.get("model")
    if model is not None:
        is_elsewhere = is_elsewhere or provider_of(model) != provider_of(general.get("model"))
    for key, value in general.items():
        is_written = own.get(key) is not None or (key == "temperature" and key in own)
        if is_written or (is_elsewhere and key in _PLACE):
            continue
        own[key] = value
        n.renamed[(*path, key)] = n.origin(("llm", key))
