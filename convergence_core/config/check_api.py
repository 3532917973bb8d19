"""Rules of ``api``: what each kind of target needs, and what it has no use for."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from convergence_core.config.api import ApiConfig, AuthConfig
from convergence_core.config.base import Section
from convergence_core.config.models import Configuration
from convergence_core.config.problems import listing, nearest
from convergence_core.config.report import Report
from convergence_core.config.search_space import CategoricalParam, SearchSpaceConfig
from convergence_core.config.secrecy import HIDDEN, has_known_secret, is_secret_key
from convergence_core.config.shown import shown
from convergence_core.config.source import Path
from convergence_core.config.tree import fields_of

_KIND: Path = ("api", "kind")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

_RESPONSE = (
    "success_field",
    "result_field",
    "error_field",
    "result_required",
    "cost_field",
    "tokens_in_field",
    "tokens_out_field",
)

# What a kind has no use for: section → keys.
_UNUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "function": {
        "": ("endpoint", "models"),
        "auth": ("type", "token_env", "header_name", "username", "password_env"),
        "request": ("method", "headers", "body", "query", "messages", "options"),
        "response": _RESPONSE,
    },
    "http": {
        "": ("function", "workers"),
        "request": ("messages", "options"),
    },
    "openai": {
        "": ("function", "workers"),
        "request": ("method", "body"),
        "response": _RESPONSE,
    },
}
_UNUSED_FIX = {
    "messages": "Use `request.body`, or `kind: openai`.",
    "options": "Use `request.body`, or `kind: openai`.",
    "body": "Use `request.messages` and `request.options`, or `kind: http`.",
    "function": "Remove it, or write `kind: function`.",
    "endpoint": "Remove it, or remove `function` and write `kind: http`.",
}


def check_api(configuration: Configuration, report: Report, *, allow_callable: bool) -> None:
    """Check what the kind needs, URLs, headers, authentication and placeholders."""
    api = configuration.api
    _check_unused(api, report)
    if api.kind == "function":
        if api.function is None and not allow_callable:
            rule = "is required by kind `function`"
            fix = "Add `function:`, e.g. `my_module:answer` or `answer.py:answer`."
            report.add(("api", "function"), rule, fix, of_key=True, about=(_KIND,))
    else:
        _check_endpoints(api, report)
    if api.models:
        _check_models(api, configuration.search_space, report)
    _check_auth(api.auth, report, is_function=api.kind == "function")
    _check_headers(api, report)
    _check_placeholders(api, configuration.search_space, report)


def _check_unused(api: ApiConfig, report: Report) -> None:
    for section, keys in _UNUSED[api.kind].items():
        holder: Section = getattr(api, section) if section else api
        path: Path = ("api", section) if section else ("api",)
        for key in keys:
            if _is_default(holder, key):
                continue
            if (section, key) == ("response", "result_required"):
                continue  # said of `result_field`
            rule = f"has no effect with kind `{api.kind}`"
            fix = _UNUSED_FIX.get(key, "Remove it, or write another `kind`.")
            if (api.kind, section) == ("function", "response"):
                fix = "Return `{result: …, success: …, cost_usd: …}` from the function instead."
            report.add((*path, key), rule, fix, of_key=True, about=(_KIND,))


def _is_default(holder: Section, key: str) -> bool:
    info = fields_of(type(holder))[key]
    default: Any = info.get_default(call_default_factory=True, validated_data={})
    return bool(getattr(holder, key) == default)


def _check_endpoints(api: ApiConfig, report: Report) -> None:
    path: Path = ("api", "endpoint")
    about = (_KIND, ("api", "models"), ("api", "function"))
    if api.endpoint is None and not api.models:
        rule = f"is required by kind `{api.kind}`, unless there are `models`"
        fix = "Add `endpoint:` with a URL, or `function:` for a Python function."
        report.add(path, rule, fix, of_key=True, about=about)
    elif api.endpoint is not None and api.models:
        rule = "must not stand beside `models`"
        report.add(path, rule, "Remove one of them.", value=_url(api.endpoint), about=about)
    for place, url in _urls(api):
        _check_url(place, url, report)


def _urls(api: ApiConfig) -> Iterator[tuple[Path, str]]:
    if api.endpoint is not None:
        yield ("api", "endpoint"), api.endpoint
    for name, model in api.models.items():
        yield ("api", "models", name, "endpoint"), model.endpoint


def _url(url: str) -> str:
    return HIDDEN if "@" in url else shown(url)


def _check_url(path: Path, url: str, report: Report) -> None:
    fix = "Write e.g. `https://api.example.com/v1/chat`."
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        report.add(path, "must be a URL", fix, value=_url(url))
        return
    if parts.username is not None or parts.password is not None:
        rule = "must hold no user name or password"
        report.add(path, rule, "Use `api.auth` with `type: basic`.", value=HIDDEN)
    elif parts.scheme not in {"http", "https"} or not host or port == 0:
        report.add(
            path, "must be a URL that begins with http:// or https://", fix, value=_url(url)
        )
    elif re.search(r"[\s\\<>\"]", url):
        report.add(path, "must be a URL without spaces or quotes", fix, value=_url(url))
    elif parts.fragment:
        report.add(path, "must be a URL without a `#` part", "Remove it.", value=_url(url))
    secret = [key for key, value in parse_qsl(parts.query) if value and is_secret_key(key)]
    if secret:
        rule = f"must hold no secret, but has the query parameter `{secret[0][:30]}`"
        fix = "Use `api.auth` with `type: api_key` and `header_name`."
        report.add(path, rule, fix)


def _check_models(api: ApiConfig, space: SearchSpaceConfig, report: Report) -> None:
    path: Path = ("search_space", "parameters", "model")
    about = (_KIND, ("api", "models"))
    if api.kind == "function":
        return
    parameter = space.parameters.get("model")
    if not isinstance(parameter, CategoricalParam):
        rule = "must be a categorical parameter, since `api.models` is chosen by it"
        names = ", ".join(list(api.models)[:5])
        fix = f"Add `model: {{type: categorical, choices: [{names}]}}`."
        report.add(path, rule, fix, of_key=True, about=about)
        return
    if parameter.when:
        rule = "must always be active, since `api.models` is chosen by it"
        report.add((*path, "when"), rule, "Remove `when`.", of_key=True, about=about)
    for i, choice in enumerate(parameter.choices):
        if choice not in api.models:
            guess = nearest(str(choice), list(api.models))
            fix = f"Did you mean `{guess}`? " if guess else ""
            fix += f"Known are: {listing(list(api.models)[:20])}."
            rule = "must be a name in `api.models`"
            report.add((*path, "choices", i), rule, fix, value=shown(choice), about=about)


def _check_auth(auth: AuthConfig, report: Report, *, is_function: bool) -> None:
    if is_function:
        return
    path: Path = ("api", "auth")
    kind: tuple[Path, ...] = ((*path, "type"), _KIND)
    needs = {
        "none": (),
        "bearer": ("token_env",),
        "api_key": ("token_env",),
        "basic": ("username", "password_env"),
    }[auth.type]
    for key in needs:
        if getattr(auth, key) is None:
            rule = f"is required by auth type `{auth.type}`"
            fix = f"Add `{key}:` with the name of an environment variable, e.g. `API_KEY`."
            if key == "username":
                fix = "Add `username:`."
            report.add((*path, key), rule, fix, of_key=True, about=kind)
    uses = {*needs, "header_name"} if auth.type == "api_key" else set(needs)
    for key in ("token_env", "header_name", "username", "password_env"):
        if key in uses or _is_default(auth, key):
            continue
        if auth.type == "none" and "type" in auth.model_fields_set and key == "token_env":
            continue  # the original demanded it even then
        rule = f"has no effect with auth type `{auth.type}`"
        wanted = "basic" if key in {"username", "password_env"} else "api_key"
        fix = f"Write `type: {wanted}`, or remove it."
        if key == "token_env":
            fix = "Write `type: bearer` or `type: api_key`, or remove it."
        report.add((*path, key), rule, fix, of_key=True, about=kind)


def _check_headers(api: ApiConfig, report: Report) -> None:
    auth_header = {"bearer": "authorization", "basic": "authorization"}.get(api.auth.type, "")
    if api.auth.type == "api_key":
        auth_header = api.auth.header_name.lower()
    seen: dict[str, str] = {}
    for name, value in api.request.headers.items():
        path: Path = ("api", "request", "headers", name)
        if _HEADER_NAME.fullmatch(name) is None:
            rule = "must be the name of an HTTP header"
            report.add(path, rule, "Use letters, digits and `-`.", of_key=True)
        if re.search(r"[\r\n\0]", value) or not (value.isascii()):
            rule, fix = "must be one line of ASCII text", "Remove line breaks and other letters."
            report.add(
                path, rule, fix, value="" if has_known_secret(value) else shown(value, name)
            )
        if name.lower() in seen:
            rule = f"must be written once, but `{seen[name.lower()]}` is the same header"
            report.add(path, rule, "Remove one of them.", of_key=True)
        elif name.lower() == auth_header:
            rule = f"must not stand beside `api.auth`, whose type `{api.auth.type}` sets it"
            report.add(path, rule, "Remove it.", of_key=True, about=(("api", "auth"),))
        seen[name.lower()] = name


# As in tasks.request_templates: `{{name}}` is the plain text `{name}`.
_PLACEHOLDER = re.compile(
    r"\{(?P<plain>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?P<rest>(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*)\}(?(plain)\})"
)


def _check_placeholders(api: ApiConfig, space: SearchSpaceConfig, report: Report) -> None:
    request = api.request
    texts = [*_texts(request.body, ("api", "request", "body"))]
    texts += _texts(request.options, ("api", "request", "options"))
    texts += [(("api", "request", "query", key), text) for key, text in request.query.items()]
    for i, message in enumerate(request.messages or ()):
        texts.append((("api", "request", "messages", i, "content"), message.content))
    for path, text in texts:
        for match in _PLACEHOLDER.finditer(text):
            if not match["plain"]:
                _check_placeholder(path, match, space, report)


def _check_placeholder(
    path: Path, match: re.Match[str], space: SearchSpaceConfig, report: Report
) -> None:
    name, rest = match["name"], match["rest"]
    if name == "input":
        return
    about: Path = ("search_space", "parameters", name)
    if name == "templates":
        template = rest.removeprefix(".")
        if template not in space.templates:
            rule = "must name a template of `search_space.templates`"
            fix = f"Known are: {listing(list(space.templates)) or 'none'}."
            place: Path = ("search_space", "templates")
            report.add(path, rule, fix, value=shown(match.group()), about=(place,))
        return
    if name in space.parameters and not rest:
        return
    guess = nearest(name, [*space.parameters, "input"])
    rule = "must hold placeholders of parameters or `{input}` only"
    fix = f"Did you mean `{{{guess}}}`? " if guess and guess != name else ""
    fix += f"For the plain text double the braces: `{{{match.group()}}}`."
    report.add(path, rule, fix, value=shown(match.group()), about=(about,))


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _texts(item, (*path, i))
