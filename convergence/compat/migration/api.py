"""Migration of ``api`` and of ``society.llm``."""

import re

from convergence.compat.migration.migrator import Migrator, Path, Section, as_section, number, take
from convergence_core.config.api import CHAT_KINDS
from convergence_core.config.secrecy import (
    has_known_secret,
    is_env_name,
    is_only_references,
    is_secret_key,
)


def migrate_api(m: Migrator, old: Section, whole: Section) -> Section:
    """Return our ``api``."""
    path: Path = ("api",)
    name = str(old.get("name", ""))
    plain = re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".-")[:64]
    if plain and plain != name:
        old["name"] = plain
        m.say((*path, "name"), f"was {name[:80]!r}; names have no spaces or other characters now")
    if old.pop("adapter_enabled", False):
        m.drop((*path, "adapter_enabled"), "there are no adapters; use `request.body`")
    if old.pop("mock_mode", False):
        m.drop((*path, "mock_mode"), "run `convergence optimize --offline` instead")
    auth, request = take(old, "auth"), take(old, "request")
    response = take(old, "response")
    new = m.keep_known(old, path)
    is_remote = "function" not in new and (new.get("endpoint") or new.get("models"))
    if is_remote and "kind" not in new:
        new["kind"] = "http"
        m.say((*path, "kind"), "requests are sent as before; `openai` would use its client")
    new_auth = _auth(m, auth, is_chat=str(new.get("kind")) in CHAT_KINDS)
    for key, section in (
        ("auth", new_auth),
        ("request", _request(m, request, new_auth)),
        ("response", _response(m, response, whole)),
    ):
        if section:
            new[key] = section
    return new


def _auth(m: Migrator, old: Section, *, is_chat: bool) -> Section:
    path: Path = ("api", "auth")
    if "api_key_header" in old:
        old.setdefault("header_name", old["api_key_header"])
        del old["api_key_header"]
    new = m.keep_known(old, path)
    if is_chat and "type" not in new:
        return new  # a kind of ours, which sends keys in a way of its own
    kind = str(new.get("type", "none")).lower()
    if kind not in ("none", "bearer", "api_key", "basic"):
        m.say((*path, "type"), f"was {kind[:20]!r}, which version 0.1 did not send either")
        kind = "none"
    uses = {
        "none": (),
        "bearer": ("token_env",),
        "api_key": ("token_env", "header_name"),
        "basic": ("username", "password_env"),
    }[kind]
    for key in ("token_env", "header_name", "username", "password_env"):
        if key in new and key not in uses:
            del new[key]
            m.drop((*path, key), f"type `{kind}` does not use it")
    for key in ("token_env", "password_env"):
        if key in new and not is_env_name(str(new[key])):
            new[key] = "API_TOKEN" if key == "token_env" else "API_PASSWORD"
            m.say((*path, key), "held something else than a variable's name; export it there")
    if kind == "none":
        return {}
    return {"type": kind, **{key: value for key, value in new.items() if key != "type"}}


def _request(m: Migrator, old: Section, auth: Section) -> Section:
    path: Path = ("api", "request")
    new = m.keep_known(old, path)
    if "method" in new:
        new["method"] = str(new["method"]).upper()
    if "timeout_seconds" in new:
        new["timeout_seconds"] = number(new["timeout_seconds"])
    headers = new.get("headers")
    if isinstance(headers, dict):
        new["headers"] = _headers(m, headers, auth)
        if not new["headers"]:
            del new["headers"]
    return new


def _headers(m: Migrator, old: Section, auth: Section) -> Section:
    path: Path = ("api", "request", "headers")
    sent = auth.get("header_name", "x-api-key") if auth.get("type") == "api_key" else ""
    sent = "authorization" if auth.get("type") in ("bearer", "basic") else str(sent).lower()
    new: Section = {}
    for name, value in old.items():
        text = str(value)
        if name.lower() == sent:
            m.drop((*path, name), "`api.auth` sets it")
            continue
        if (is_secret_key(name) or has_known_secret(text)) and not is_only_references(text):
            variable = re.sub(r"\W+", "_", name).strip("_").upper() or "TOKEN"
            scheme = re.match(r"(?:bearer|basic|token)\s", text, re.IGNORECASE)
            text = f"{scheme.group() if scheme else ''}${{{variable}}}"
            m.say((*path, name), f"held a secret; export it as {variable}")
        new[name] = text
    return new


def _response(m: Migrator, old: Section, whole: Section) -> Section:
    path: Path = ("api", "response")
    new = m.keep_known(old, path)
    evaluator = as_section(as_section(whole.get("evaluation")).get("custom_evaluator"))
    if evaluator.get("enabled") is True and "result_field" in new:
        field_name = new.pop("result_field")
        reason = (
            "version 0.1 never read it: evaluators got the whole answer, as they still do; "
            f"write `result_field: {field_name}` to give them that part"
        )
        m.drop((*path, "result_field"), reason)
    return {key: value for key, value in new.items() if value != _RESPONSE_DEFAULTS.get(key)}


_RESPONSE_DEFAULTS = {"success_field": "success", "error_field": "error"}


# -- society.llm: the model that judges has a section of its own now

_OLD = ("society.llm",)
"""One name, so that it is told at the top level: the section itself goes."""
_LLM_DEFAULTS = {
    "model": "gemini/gemini-2.0-flash-exp",
    "api_key_env": "GEMINI_API_KEY",
    "temperature": 0.7,
    "max_tokens": 1000,
}
"""What version 0.1 took for a key that was not written."""


def move_llm(m: Migrator, data: Section) -> None:
    """Move version 0.1's ``society.llm`` to ``llm`` if a judge asks it; else say where it goes."""
    society = data.get("society")
    if not isinstance(society, dict) or not isinstance(society.get("llm"), dict):
        return
    society = data["society"] = dict(society)
    old: Section = society.pop("llm")
    if data.get("llm") is not None:
        m.drop(_OLD, "`llm` says it")
    elif not _has_judge(data):
        reason = "nothing asks it; write it as `llm` beside a metric of type `llm_judge`"
        m.drop(_OLD, reason)
    else:
        data["llm"] = _migrated(m, old)
    if not society:
        del data["society"]


def _has_judge(data: Section) -> bool:
    metrics = as_section(as_section(data.get("evaluation")).get("metrics"))
    return any(
        metric.get("type") == "llm_judge" and not {"rubric", "rubric_path"}.isdisjoint(metric)
        for metric in map(as_section, metrics.values())
    )


def _migrated(m: Migrator, old: Section) -> Section:
    new = {key: value for key, value in old.items() if value is not None}
    if "base_url" in new:
        new.setdefault("endpoint", new["base_url"])
        del new["base_url"]
    new = m.keep_known(new, ("llm",))
    m.say(("llm",), "was `society.llm`")
    return new | {key: value for key, value in _LLM_DEFAULTS.items() if key not in new}
