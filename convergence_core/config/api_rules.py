"""Rules of ``api``: keys that each kind of target requires or ignores."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from convergence_core.config.api import (
    BODILESS,
    CHAT_KINDS,
    HOSTED_KINDS,
    URLLESS_KINDS,
    ApiConfig,
    AuthConfig,
)
from convergence_core.config.base import unread_keys
from convergence_core.config.models import Configuration
from convergence_core.config.problems import Report, guessed, listing
from convergence_core.config.schema import is_default
from convergence_core.config.search_space import CategoricalParam, SearchSpaceConfig
from convergence_core.config.secrecy import (
    HIDDEN,
    has_known_secret,
    is_secret_key,
    shown,
    shown_url,
)
from convergence_core.config.source import Path
from convergence_core.errors import Problem
from convergence_core.records import Json

MIN_SESSION_S: Final = 60
"""Minimum time-out of a session, in seconds."""
MAX_SESSION_S: Final = 21_600
"""Maximum time-out of a session, in seconds."""

_FIELD = re.compile(r"\{[A-Za-z_]")


def session_problems(body: Json) -> Iterator[Problem]:
    """Yield the problems of a session that a run must avoid; the provider checks other fields.

    Args:
        body: Request body as written, or with its placeholders filled.
    """
    if not isinstance(body, dict | None):
        fix = "Write fields of a session."
        yield Problem(key="", rule="must be a mapping", value=shown(body), fix=fix)
        return
    fields = body or {}
    if "userMetadata" in fields:
        rule, fix = (
            "is written by the run",
            "Remove it: a run finds and releases its sessions by it.",
        )
        yield Problem(key="userMetadata", rule=rule, fix=fix)
    timeout = fields.get("timeout", MIN_SESSION_S)
    is_filled_later = isinstance(timeout, str) and _FIELD.search(timeout)
    is_length = isinstance(timeout, int) and MIN_SESSION_S <= timeout <= MAX_SESSION_S
    if not is_length and not is_filled_later:
        rule = f"must be {MIN_SESSION_S} to {MAX_SESSION_S:,} seconds"
        yield Problem(key="timeout", rule=rule, value=shown(timeout), fix="Correct or remove it.")
    proxies = fields.get("proxies")
    for proxy in proxies if isinstance(proxies, list) else ():
        if isinstance(proxy, dict) and "password" in proxy:
            rule = "must hold no password, which would be stored with the request"
            fix = "Use a proxy that needs none."
            yield Problem(key="proxies", rule=rule, value=HIDDEN, fix=fix)


def check_session(api: ApiConfig, report: Report) -> None:
    """Check the session that a target of kind ``browserbase`` requests."""
    for problem in session_problems(api.request.body):
        path: Path = ("api", "request", "body", *filter(None, (problem.key,)))
        report.add(path, problem.rule, problem.fix, value=problem.value, of_key=not problem.value)


_UNUSED_FIX = {
    "body": "Use `request.messages` and `request.options`, or `kind: http`.",
    "endpoint": "Remove it, or remove `function` and write `kind: http`.",
    **dict.fromkeys(("messages", "options"), "Use `request.body`, or `kind: openai`."),
}
"""Unread key → fix, if another key replaces it."""
_NEEDED_BY = {
    "function": (
        "function",
        "Add `function:`, e.g. `my_module:answer` or `answer.py:answer`.",
    ),
    "agno": ("function", "Add `function:` with what makes the agent, e.g. `agents.py:make`."),
    "browserbase": ("function", "Add `function:` with the script, e.g. `scrape.py:run`."),
    "plugin": (
        "plugin",
        "Add `plugin:` with the name of an entry point of the group `convergence.targets`.",
    ),
}
"""Kind → its required key, and the fix if that is missing."""


def check_api(configuration: Configuration, report: Report, *, allow_callable: bool) -> None:
    """Check required keys, URLs, headers, authentication and placeholders."""
    api, space = configuration.api, configuration.search_space
    _check_unused(api, report)
    if api.kind not in URLLESS_KINDS:
        _check_endpoints(api, report)
    if api.kind in _NEEDED_BY and not (api.kind == "function" and allow_callable):
        key, fix = _NEEDED_BY[api.kind]
        if getattr(api, key) is None:
            report.require(("api", key), f"by kind `{api.kind}`", fix)
    if api.models and api.kind not in URLLESS_KINDS:
        _check_models(api, space, report)
    model = space.parameters.get("model")
    if api.deployment is not None and not api.models and isinstance(model, CategoricalParam):
        _check_deployment(api.deployment, model, report)
    if api.kind == "browserbase":
        check_session(api, report)
    if api.kind not in {"function", "local"}:
        _check_auth(api.auth, report)
    _check_headers(api, report)


def _check_unused(api: ApiConfig, report: Report) -> None:
    for key, readers in unread_keys(api, api.kind):
        fix = _UNUSED_FIX.get(key[-1]) or _other_kind(readers.kinds)
        if (api.kind, key[0]) == ("function", "response"):
            fix = "Return `{result: …, success: …, cost_usd: …}` from the function instead."
        report.no_effect(("api", *key), f"with kind `{api.kind}`", fix)


def _other_kind(readers: tuple[str, ...]) -> str:
    if len(readers) <= 3:
        return f"Remove it, or write {' or '.join(f'`kind: {kind}`' for kind in readers)}."
    if CHAT_KINDS.issuperset(readers):
        return "Remove it; it is for chat kinds such as `openai`."
    return f"Remove it; it is read for the kinds {listing(readers)}."


def _check_endpoints(api: ApiConfig, report: Report) -> None:
    if api.endpoint is None and not api.models and api.kind not in HOSTED_KINDS:
        why = f"by kind `{api.kind}`, unless there are `models`"
        fix = "Add `endpoint:` with a URL, or `function:` for a Python function."
        report.require("api.endpoint", why, fix)
    elif api.endpoint is not None and api.models:
        rule, value = "cannot be combined with `models`", shown_url(api.endpoint)
        report.add("api.endpoint", rule, "Remove one of them.", value=value)
    urls: dict[Path, str | None] = {("api", "endpoint"): api.endpoint}
    urls |= {("api", "models", name, "endpoint"): m.endpoint for name, m in api.models.items()}
    for path, url in urls.items():
        if url is None:
            continue
        check_url(path, url, report)
        if api.kind == "azure" and "api-version" in url:
            rule = "must not hold `api-version`"
            fix = "Remove it, and write `api.api_version`."
            report.add(path, rule, fix, value=shown_url(url))


def _check_models(api: ApiConfig, space: SearchSpaceConfig, report: Report) -> None:
    path: Path = ("search_space", "parameters", "model")
    parameter, names = space.parameters.get("model"), list(api.models)
    if not isinstance(parameter, CategoricalParam):
        rule = "must be a categorical parameter, since `api.models` is chosen by it"
        fix = f"Add `model: {{type: categorical, choices: [{', '.join(names[:5])}]}}`."
        report.add(path, rule, fix, of_key=True)
        return
    if parameter.when:
        rule = "must always be active, since `api.models` is chosen by it"
        report.add((*path, "when"), rule, "Remove `when`.", of_key=True)
    for i, choice in enumerate(parameter.choices):
        if choice not in api.models:
            rule = "must be a name in `api.models`"
            fix = guessed(str(choice), names, f"Known are: {listing(names[:20])}.")
            report.add((*path, "choices", i), rule, fix, value=shown(choice))


def _check_deployment(deployment: str, model: CategoricalParam, report: Report) -> None:
    """Check that one deployment does not serve several models, which would all be the same."""
    if len(model.choices) > 1:
        rule = "cannot be combined with several models: it would answer for each"
        fix = "Remove it: each model's own name is its deployment's. Or use `api.models`."
        report.add("api.deployment", rule, fix, value=shown(deployment))


# -- authentication and headers

_NEEDED_KEYS: dict[str, tuple[str, ...]] = {
    "none": (),
    "bearer": ("token_env",),
    "api_key": ("token_env",),
    "basic": ("username", "password_env"),
}
_KEY_FIX = {
    "token_env": "Write `type: bearer` or `type: api_key`, or remove it.",
    "header_name": "Write `type: api_key`, or remove it.",
    **dict.fromkeys(("username", "password_env"), "Write `type: basic`, or remove it."),
}
_OTHER_FORMAT = re.compile(r"\b(?:x-www-form-urlencoded|form-data|multipart|xml)\b", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def _check_auth(auth: AuthConfig, report: Report) -> None:
    """Check the keys that the type of authentication requires or ignores."""
    path: Path = ("api", "auth")
    needed = _NEEDED_KEYS[auth.type]
    for key in needed:
        if getattr(auth, key) is None:
            fix = f"Add `{key}:` with the name of an environment variable, e.g. `API_KEY`."
            fix = "Add `username:`." if key == "username" else fix
            report.require((*path, key), f"by auth type `{auth.type}`", fix)
    read = {*needed, "header_name"} if auth.type == "api_key" else {*needed}
    if auth.type == "none" and "type" in auth.model_fields_set:
        read.add("token_env")  # the-convergence 0.1 required it even so
    for key, fix in _KEY_FIX.items():
        if key not in read and not is_default(auth, key):
            report.no_effect((*path, key), f"with auth type `{auth.type}`", fix)


def _check_headers(api: ApiConfig, report: Report) -> None:
    """Check the names and values of headers, and that no header is sent twice."""
    sent = {"bearer": "authorization", "basic": "authorization"}.get(api.auth.type, "")
    if api.auth.type == "api_key":
        sent = api.auth.header_name.lower()
    sends_body = api.request.body is not None or api.request.method not in BODILESS
    names: dict[str, str] = {}
    for name, value in api.request.headers.items():
        path, lowered = ("api", "request", "headers", name), name.lower()
        if _HEADER_NAME.fullmatch(name) is None:
            rule = "must be the name of an HTTP header"
            report.add(path, rule, "Use letters, digits and `-`.", of_key=True)
        if re.search(r"[\r\n\0]", value) or not value.isascii():
            rule, fix = (
                "must be one line of ASCII text",
                "Remove line breaks and non-ASCII letters.",
            )
            text = "" if has_known_secret(value) else shown(value, name)
            report.add(path, rule, fix, value=text)
        if lowered in names:
            rule = f"must be written once, but `{names[lowered]}` is the same header"
            report.add(path, rule, "Remove one of them.", of_key=True)
        elif lowered == sent:
            rule = f"cannot be combined with `api.auth`, whose type `{api.auth.type}` sets it"
            report.add(path, rule, "Remove it.", of_key=True)
        elif lowered == "content-type" and sends_body and _OTHER_FORMAT.search(value):
            rule = "cannot name another format, because bodies are sent as JSON"
            fix = "Remove it, or call the endpoint from an `api.function` that sends its format."
            report.add(path, rule, fix, value=shown(value, name))
        names[lowered] = name


# -- URLs of any key


def check_url(path: Path, url: str, report: Report, *, secret_fix: str = "") -> None:
    """Check that a text is a URL without a secret; ``secret_fix`` names the place for secrets."""
    example, text = "Write e.g. `https://api.example.com/v1/chat`.", shown_url(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        report.add(path, "must be a URL", example, value=text)
        return
    if parts.username is not None or parts.password is not None:
        fix = secret_fix or "Use `api.auth` with `type: basic`."
        report.add(path, "must hold no user name or password", fix, value=HIDDEN)
    elif parts.scheme not in {"http", "https"} or not host or port == 0:
        rule = "must be a URL that begins with http:// or https://"
        report.add(path, rule, example, value=text)
    elif (written := re.search(r"\$?\{[^{}]*\}?|\}", url)) is not None:
        fix = "Write the whole URL. `api.models` chooses one by the parameter `model`, and `api.request.query` "
        fix += "and `body` have placeholders."
        report.add(
            path, "must be a URL without placeholders or variables", fix, value=shown(written[0])
        )
    elif re.search(r"[\s\\<>\"]", url):
        report.add(path, "must be a URL without spaces or quotes", example, value=text)
    elif parts.fragment:
        report.add(path, "must be a URL without a `#` part", "Remove it.", value=text)
    secret = [key for key, value in parse_qsl(parts.query) if value and is_secret_key(key)]
    if secret:
        rule = f"must hold no secret, but has the query parameter `{secret[0][:30]}`"
        fix = secret_fix or "Use `api.auth` with `type: api_key` and `header_name`."
        report.add(path, rule, fix)
