"""Rules of ``api``: what each kind of target needs, and what it has no use for."""

import re
from collections.abc import Iterator

from convergence_core.config.api import HOSTED_KINDS, ApiConfig
from convergence_core.config.base import Section
from convergence_core.config.check_auth import check_auth
from convergence_core.config.check_urls import check_url, shown_url
from convergence_core.config.models import Configuration
from convergence_core.config.problems import listing, nearest
from convergence_core.config.report import Report
from convergence_core.config.search_space import CategoricalParam, SearchSpaceConfig
from convergence_core.config.shown import shown
from convergence_core.config.source import Path, texts_of
from convergence_core.config.tree import is_default

_KIND: Path = ("api", "kind")

_RESPONSE = (
    "success_field",
    "result_field",
    "error_field",
    "result_required",
    "cost_field",
    "tokens_in_field",
    "tokens_out_field",
)

_AZURE = ("api_version", "deployment")
_GEMINI = ("protocol",)
_CHAT: dict[str, tuple[str, ...]] = {
    "": ("function", "workers"),
    "request": ("method", "body"),
    "response": _RESPONSE,
}


def _chat(*of_others: str) -> dict[str, tuple[str, ...]]:
    """Return what a chat kind has no use for, with the keys that are other kinds' alone."""
    return {**_CHAT, "": (*_CHAT[""], *of_others)}


_UNUSED: dict[str, dict[str, tuple[str, ...]]] = {
    "function": {
        "": ("endpoint", "models", "batch_prices", *_AZURE, *_GEMINI),
        "auth": ("type", "token_env", "header_name", "username", "password_env"),
        "request": (
            *("method", "headers", "body", "query", "messages", "options", "stream"),
            *("unsupported", "connect_seconds", "first_byte_seconds", "max_response_bytes"),
        ),
        "response": _RESPONSE,
    },
    "http": {
        "": ("function", "workers", "batch_prices", *_AZURE, *_GEMINI),
        "request": ("messages", "options", "stream", "unsupported"),
    },
    "openai": _chat(*_AZURE, *_GEMINI),
    "groq": _chat(*_AZURE, *_GEMINI),
    "azure": _chat(*_GEMINI),
    "gemini": _chat(*_AZURE),
}
"""What a kind has no use for: section → keys."""

_OF_CHAT = "Remove it; it is for chat kinds: `openai`, `azure`, `groq` and `gemini`."
_UNUSED_FIX = {
    "messages": "Use `request.body`, or `kind: openai`.",
    "options": "Use `request.body`, or `kind: openai`.",
    "body": "Use `request.messages` and `request.options`, or `kind: http`.",
    "function": "Remove it, or write `kind: function`.",
    "endpoint": "Remove it, or remove `function` and write `kind: http`.",
    **dict.fromkeys(("stream", "unsupported", "batch_prices"), _OF_CHAT),
    **dict.fromkeys(_AZURE, "Remove it, or write `kind: azure`."),
    **dict.fromkeys(_GEMINI, "Remove it, or write `kind: gemini`."),
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
    if api.deployment is not None:
        _check_deployment(api, configuration.search_space, report)
    check_auth(api, report)
    _check_times(api, report)
    _check_placeholders(api, configuration.search_space, report)


def _check_unused(api: ApiConfig, report: Report) -> None:
    for section, keys in _UNUSED[api.kind].items():
        holder: Section = getattr(api, section) if section else api
        path: Path = ("api", section) if section else ("api",)
        for key in keys:
            if is_default(holder, key):
                continue
            if (section, key) == ("response", "result_required"):
                continue  # said of `result_field`
            rule = f"has no effect with kind `{api.kind}`"
            fix = _UNUSED_FIX.get(key, "Remove it, or write another `kind`.")
            if (api.kind, section) == ("function", "response"):
                fix = "Return `{result: …, success: …, cost_usd: …}` from the function instead."
            report.add((*path, key), rule, fix, of_key=True, about=(_KIND,))


def _check_endpoints(api: ApiConfig, report: Report) -> None:
    path: Path = ("api", "endpoint")
    about = (_KIND, ("api", "models"), ("api", "function"))
    if api.endpoint is None and not api.models and api.kind not in HOSTED_KINDS:
        rule = f"is required by kind `{api.kind}`, unless there are `models`"
        fix = "Add `endpoint:` with a URL, or `function:` for a Python function."
        report.add(path, rule, fix, of_key=True, about=about)
    elif api.endpoint is not None and api.models:
        rule = "must not stand beside `models`"
        report.add(path, rule, "Remove one of them.", value=shown_url(api.endpoint), about=about)
    for place, url in _urls(api):
        check_url(place, url, report)
        if api.kind == "azure" and "api-version" in url:
            rule = "must not hold `api-version`, which has a key of its own"
            fix = "Cut it off, and write `api.api_version`."
            report.add(place, rule, fix, value=shown_url(url), about=(_KIND,))


def _urls(api: ApiConfig) -> Iterator[tuple[Path, str]]:
    if api.endpoint is not None:
        yield ("api", "endpoint"), api.endpoint
    for name, model in api.models.items():
        yield ("api", "models", name, "endpoint"), model.endpoint


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


def _check_deployment(api: ApiConfig, space: SearchSpaceConfig, report: Report) -> None:
    """One deployment is one model, so that several to choose from would all be the same."""
    parameter = space.parameters.get("model")
    if isinstance(parameter, CategoricalParam) and len(parameter.choices) > 1 and not api.models:
        rule = "must not stand beside several models to choose from: it would answer for each"
        fix = "Remove it: each model's own name is its deployment's. Or use `api.models`."
        about: tuple[Path, ...] = (_KIND, ("search_space", "parameters", "model"))
        report.add(("api", "deployment"), rule, fix, value=shown(api.deployment), about=about)


def _check_times(api: ApiConfig, report: Report) -> None:
    first, total = api.request.first_byte_seconds, api.request.timeout_seconds
    if first is not None and first > total:
        path: Path = ("api", "request", "first_byte_seconds")
        rule = f"must not exceed `timeout_seconds` ({total:g})"
        fix = f"Write {total:g} or less, or raise `timeout_seconds`."
        about = (("api", "request", "timeout_seconds"),)
        report.add(path, rule, fix, value=shown(first), about=about)


# As in tasks.http.request_templates: `{{name}}` is the plain text `{name}`.
_PLACEHOLDER = re.compile(
    r"\{(?P<plain>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"(?P<rest>(?:\.[A-Za-z0-9_-]+|\[-?\d+\])*)\}(?(plain)\})"
)


def _check_placeholders(api: ApiConfig, space: SearchSpaceConfig, report: Report) -> None:
    request = api.request
    texts = [*texts_of(request.body, ("api", "request", "body"))]
    texts += texts_of(request.options, ("api", "request", "options"))
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
