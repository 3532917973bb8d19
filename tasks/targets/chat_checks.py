"""Checks of chat requests: parameters without a use, settings without a field."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from convergence_core.config import (
    ApiConfig,
    BooleanParam,
    CategoricalParam,
    Configuration,
    IntParam,
    ParameterConfig,
    TextParam,
)
from convergence_core.config.secrecy import dotted
from convergence_core.config.space_rules import unused
from convergence_core.errors import Problem
from convergence_core.records import Json
from tasks.http.request_templates import placeholders
from tasks.providers import make_chat
from tasks.providers.fields import REQUEST_FIELDS

SYSTEM = "system"


def system_parameter(configuration: Configuration) -> str | None:
    """Return the parameter that is the system message if no messages are configured."""
    if configuration.api.request.messages is not None:
        return None
    parameters = configuration.search_space.parameters
    if SYSTEM in parameters:
        return SYSTEM
    texts = [name for name, p in parameters.items() if isinstance(p, TextParam)]
    return texts[0] if len(texts) == 1 else None


def sent_fields(configuration: Configuration) -> frozenset[str]:
    """Return the parameters that are sent as fields; a prompt that a message names is not."""
    filled = _filled_names(configuration.api)
    return frozenset(
        name
        for name, parameter in configuration.search_space.parameters.items()
        if name in REQUEST_FIELDS and not (isinstance(parameter, TextParam) and name in filled)
    )


def check_parameters(configuration: Configuration, texts: Iterable[str] = ()) -> list[Problem]:
    """Return the problems of a configuration's requests, before any call.

    These are parameters that no request would hold, a missing model and, unless
    ``api.request.unsupported`` is ``drop``, settings that no model has a field for.

    Args:
        configuration: Configuration to check.
        texts: Variants of text parameters, which may name other parameters.
    """
    api = configuration.api
    used = sent_fields(configuration) | _filled_names(api)
    used |= {system_parameter(configuration) or ""}
    used |= {placeholder.name for text in texts for placeholder in placeholders(text)}
    problems = []
    for name in unused(configuration.search_space.parameters, used):
        near = difflib.get_close_matches(name, sorted(REQUEST_FIELDS), n=1)
        hint = f"Did you mean `{near[0]}`? " if near else ""
        problems.append(
            Problem(
                key=dotted(("search_space", "parameters", name)),
                rule="must be a field of a chat request, or be named in a message",
                value="",
                fix=f"{hint}Write `{{{name}}}` into `api.request.messages`, or "
                f'`{name}: "{{{name}}}"` into `api.request.options` to send it as it is.',
            )
        )
    has_model = "model" in configuration.search_space.parameters or "model" in api.request.options
    if not has_model:
        problems.append(
            Problem(
                key="api.request.options.model",
                rule="is required, unless a parameter is called `model`",
                value="",
                fix="Write `options: {model: …}` with the model's name.",
            )
        )
    elif api.request.unsupported == "refuse":
        problems += _unsupported(configuration)
    return problems


def _filled_names(api: ApiConfig) -> set[str]:
    written: list[Json] = [dict(api.request.options), dict(api.request.query)]
    written += [message.content for message in api.request.messages or ()]
    return {placeholder.name for template in written for placeholder in placeholders(template)}


# -- settings without a field


def _unsupported(configuration: Configuration) -> Iterator[Problem]:
    """Yield a problem for each setting that every model rejects, whatever its value."""
    api, space = configuration.api, configuration.search_space
    models = [*_models(configuration)]
    plain = {
        name: value
        for name, value in api.request.options.items()
        if name != "model" and not any(True for _ in placeholders(value))
    }
    thinking = api.request.options.get("thinking")
    others = plain if thinking is None else {**plain, "thinking": thinking}
    for name, value in plain.items():
        if name not in space.parameters:
            reasons = [_refusal(api, model, name, ([value], 0), others) for model in models]
            yield from _problem(dotted(("api", "request", "options", name)), models, reasons)
    for name in sorted(sent_fields(configuration) - {"model"}):
        parameter = space.parameters[name]
        allowed = parameter.when.get("model")
        affected = [model for model in models if allowed is None or model in allowed]
        tried = _values(parameter)
        reasons = [_refusal(api, model, name, tried, others) for model in affected]
        yield from _problem(dotted(("search_space", "parameters", name)), affected, reasons)


def _models(configuration: Configuration) -> Iterator[str]:
    """Yield the possible models; none if a placeholder names them."""
    parameter = configuration.search_space.parameters.get("model")
    if isinstance(parameter, CategoricalParam):
        yield from (choice for choice in parameter.choices if isinstance(choice, str))
        return
    written = configuration.api.request.options.get("model")
    if parameter is None and isinstance(written, str) and not any(placeholders(written)):
        yield written


def _values(parameter: ParameterConfig) -> tuple[list[Json], int]:
    """Return representative values, and how many may be accepted without leaving a choice.

    A model that accepts only its default within a range does not support the range.
    """
    match parameter:
        case CategoricalParam():
            return [*parameter.choices], 0
        case BooleanParam():
            return [False, True], 0
        case TextParam():
            return [*parameter.variants], 0
        case _:
            third = (parameter.max - parameter.min) / 3
            inner = {parameter.min + third, parameter.min + 2 * third}
            whole = isinstance(parameter, IntParam)
            values: set[float] = {
                parameter.min,
                parameter.max,
                *(int(v) if whole else v for v in inner),
            }
            return [*sorted(values)], 1


def _refusal(
    api: ApiConfig,
    model: str,
    name: str,
    tried: tuple[list[Json], int],
    others: Mapping[str, Json],
) -> str | None:
    """Return why a model rejects all but ``n_spare`` values of a setting, else ``None``."""
    values, n_spare = tried
    endpoint = api.models[model].endpoint if model in api.models else api.endpoint
    chat = make_chat(api, endpoint)
    reasons = [
        dict(chat.mapped([], model=model, settings={**others, name: value}).refused).get(name)
        for value in values
    ]
    refused = [reason for reason in reasons if reason is not None]
    return refused[0] if refused and len(reasons) - len(refused) <= n_spare else None


def _problem(key: str, models: list[str], reasons: list[str | None]) -> Iterator[Problem]:
    if not models or None in reasons:
        return
    subject = f"`{models[0]}`" if len(models) == 1 else f"any of the {len(models)} models"
    yield Problem(
        key=key,
        rule=f"must be a setting that {subject} has a field for: {reasons[0]}",
        value="",
        fix="Remove it, or write `api.request.unsupported: drop` to leave it out of requests.",
    )
