"""Any OpenAI-compatible chat endpoint as a target: parameters and a case become a request."""

import difflib
from collections.abc import Mapping

from convergence_core.config import ApiConfig, Configuration, TextParam
from convergence_core.errors import CandidateFault, Problem
from convergence_core.records import Case, Json, Params, Reply
from tasks.authentication import request_headers, secret_name
from tasks.providers import REQUEST_FIELDS, OpenAIChat
from tasks.redaction import Secrets
from tasks.request_templates import Values, placeholders
from tasks.values import as_text

SYSTEM = "system"


class ChatTarget:
    """One chat model, or several behind ``api.models``.

    A parameter named like a request field is sent as that field. One that a message or
    ``request.options`` names as a placeholder, and no field is called like, is only filled in.
    """

    provider = "openai"

    def __init__(
        self,
        configuration: Configuration,
        *,
        templates: Mapping[str, str],
        secrets: Secrets,
        workers: int,
    ) -> None:
        self._api = configuration.api
        self._templates = templates
        self._system = system_parameter(configuration)
        self._fields = sent_fields(configuration, templates)
        api = self._api
        endpoints = {name: model.endpoint for name, model in api.models.items()}
        if api.endpoint is not None:
            endpoints[""] = api.endpoint
        self._chats = {
            name: OpenAIChat(
                endpoint,
                headers=lambda: request_headers(api, secrets),
                timeout_s=api.request.timeout_seconds,
                n_connections=workers,
                secret=secret_name(api),
            )
            for name, endpoint in endpoints.items()
        }

    def request(self, params: Params, case: Case) -> Json:
        """Return base URL, query, headers as configured, and the chat request; no secret in it.

        Raises:
            CandidateFault: the case lacks an input, or no model is named.
        """
        request = self._api.request
        values = Values(params, case.input, self._templates)
        body = values.fill(dict(request.options))
        assert isinstance(body, dict)  # noqa: S101 - a mapping stays one
        body |= {name: value for name, value in params.items() if name in self._fields}
        body["messages"] = self._messages(values)
        if not isinstance(body.get("model"), str):
            raise CandidateFault("no model is named for this request", error_type="no_model")
        query: dict[str, Json] = {name: values.text(text) for name, text in request.query.items()}
        headers: dict[str, Json] = dict(request.headers)
        return {
            "base_url": self._chat(params).base_url,
            "query": query,
            "headers": headers,
            "model": body["model"],
            "body": body,
        }

    async def call(self, params: Params, case: Case) -> Reply:
        """Ask the model once; the value is the text of its first choice.

        Raises:
            CandidateFault: a refusal, an empty answer, or a 4xx.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or refused access.
        """
        request = self.request(params, case)
        assert isinstance(request, dict)  # noqa: S101 - made above
        body, query = request["body"], request["query"]
        assert isinstance(body, dict) and isinstance(query, dict)  # noqa: S101, PT018 - as above
        messages = body["messages"]
        options = {
            name: value for name, value in body.items() if name not in ("messages", "model")
        }
        completion = await self._chat(params).ask(
            messages,  # type: ignore[arg-type]  # a list of mappings, made above
            model=str(body["model"]),
            options=options,
            query=query,
        )
        return Reply(
            value=completion.text,
            latency_ms=completion.latency_ms,
            tokens_in=completion.tokens_in,
            tokens_out=completion.tokens_out,
            model=completion.model,
            provider=self.provider,
        )

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        for chat in self._chats.values():
            await chat.aclose()

    def _chat(self, params: Params) -> OpenAIChat:
        name = str(params.get("model")) if self._api.models else ""
        if name not in self._chats:
            raise CandidateFault(
                f"`api.models` has no entry {name!r}; the parameter `model` chooses among "
                f"{', '.join(self._api.models)}",
                error_type="unknown_model",
            )
        return self._chats[name]

    def _messages(self, values: Values) -> list[Json]:
        written = self._api.request.messages
        if written is not None:
            return [{"role": m.role, "content": values.text(m.content)} for m in written]
        messages: list[Json] = []
        if self._system is not None and (text := values.params.get(self._system)):
            messages.append({"role": "system", "content": as_text(text)})
        return messages + input_messages(values.case_input)


def input_messages(case_input: Json) -> list[Json]:
    """Return the messages that a case's input stands for.

    A list of messages is taken as it is; a mapping with one text in it is that text.
    """
    if (
        isinstance(case_input, list)
        and case_input
        and all(isinstance(m, dict) and {"role", "content"} <= m.keys() for m in case_input)
    ):
        return case_input
    if isinstance(case_input, dict) and len(case_input) == 1:
        (only,) = case_input.values()
        if isinstance(only, (str, list)):
            return input_messages(only)
    return [{"role": "user", "content": as_text(case_input)}]


def system_parameter(configuration: Configuration) -> str | None:
    """Return the parameter that is the system message where no messages are written."""
    if configuration.api.request.messages is not None:
        return None
    parameters = configuration.search_space.parameters
    if SYSTEM in parameters:
        return SYSTEM
    texts = [name for name, p in parameters.items() if isinstance(p, TextParam)]
    return texts[0] if len(texts) == 1 else None


def sent_fields(configuration: Configuration, templates: Mapping[str, str]) -> frozenset[str]:
    """Return the parameters that are sent as fields: a text that a message names is not."""
    filled = _filled_names(configuration.api, templates)
    return frozenset(
        name
        for name, parameter in configuration.search_space.parameters.items()
        if name in REQUEST_FIELDS and not (isinstance(parameter, TextParam) and name in filled)
    )


def check_parameters(configuration: Configuration, templates: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each parameter that no chat request would hold, and for no model."""
    api = configuration.api
    used = sent_fields(configuration, templates) | _filled_names(api, templates)
    used |= {system_parameter(configuration) or ""}
    problems = []
    for name in configuration.search_space.parameters:
        if name in used:
            continue
        near = difflib.get_close_matches(name, sorted(REQUEST_FIELDS), n=1)
        hint = f"Did you mean `{near[0]}`? " if near else ""
        problems.append(
            Problem(
                key=f"search_space.parameters.{name}",
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
    return problems


def _filled_names(api: ApiConfig, templates: Mapping[str, str]) -> set[str]:
    written: list[Json] = [dict(api.request.options), dict(api.request.query)]
    written += [message.content for message in api.request.messages or ()]
    found = [placeholder for template in written for placeholder in placeholders(template)]
    used = [templates.get(p.path, "") for p in found if p.name == "templates"]
    return {p.name for p in found} | {p.name for text in used for p in placeholders(text)}
