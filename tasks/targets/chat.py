"""Chat models as targets: requests from parameters and cases."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from convergence_core.budget.bounds import prompt_bound
from convergence_core.budget.prices import COMPATIBLE, CONFIGURED, PriceTable, provider_of
from convergence_core.budget.usage import (
    is_priced_apart,
    may_exceed_tables,
    reported_cost,
    usage_of,
)
from convergence_core.config import Configuration
from convergence_core.errors import Billed, CandidateFault, InfrastructureFault
from convergence_core.ports import WorstCase
from convergence_core.prompts.shots import END, Shot, split
from convergence_core.records import Case, Json, Params, Reply, fields_of
from convergence_core.thought_tags import TextCallback
from tasks.calls.metric_calls import PaidCall
from tasks.http.authentication import request_headers
from tasks.http.clients import ClientSettings
from tasks.http.request_templates import Values
from tasks.json_values import as_text, mapping, mappings
from tasks.providers import make_chat
from tasks.providers.answers import ChatCompletion
from tasks.providers.chat import ChatSettings, Delivery, Provider, check_refused
from tasks.providers.fields import REQUEST_FIELDS, Mapped, n_answers, output_limit
from tasks.providers.streams import EventCallback
from tasks.secrets.redaction import Secrets, secret_name
from tasks.targets.chat_checks import sent_fields, system_parameter
from tasks.targets.endpoint import chosen_model

_NO_PRICES = PriceTable(version="")


@dataclass(eq=False, repr=False)
class ChatTarget:
    """Target of one chat model, or of several behind ``api.models``.

    A parameter with the name of a request field is sent as that field. A parameter that is only a
    placeholder of a message or of ``request.options`` is only filled in.

    Args:
        configuration: Configuration of a chat kind.
        secrets: Source of keys, read at each request.
        workers: Maximum concurrent connections.
        prices: Price table.
        base_dir: Base of relative paths of local models; ``None`` means the working folder.
        mock_url: Server that answers instead of the provider.
        is_conversation: Whether inputs are conversations, lists of messages. They get one system
            message: their own, then the configuration's. The configuration's user message is
            dropped, because it only formats test cases. Any field of a chat request may be a
            parameter.
    """

    configuration: Configuration
    _: KW_ONLY
    secrets: Secrets
    workers: int
    prices: PriceTable = _NO_PRICES
    base_dir: Path | None = None
    mock_url: str | None = None
    is_conversation: bool = False

    def __post_init__(self) -> None:
        """Prepare a client for each endpoint."""
        configuration = self.configuration
        self._system = system_parameter(configuration)
        self._fields = sent_fields(configuration)
        if self.is_conversation:
            unsent = configuration.search_space.parameters.keys() - self._fields
            self._fields |= REQUEST_FIELDS - unsent
        self._api = api = configuration.api
        self.provider: str = api.kind
        """Kind of the API, for tables and prices."""
        settings = ChatSettings(
            headers=lambda: request_headers(api, self.secrets),
            client=ClientSettings.of(api.request, self.workers),
            secret=secret_name(api),
            provider=api.kind,
            **fields_of(api.request, "unsupported", "separate_thinking"),
        )
        endpoints: dict[str, str | None] = {n: model.endpoint for n, model in api.models.items()}
        where: dict[str, Any] = {"base_dir": self.base_dir, "mock_url": self.mock_url}
        self._chats: dict[str, Provider] = {
            name: make_chat(api, endpoint, settings, **where)
            for name, endpoint in (endpoints or {"": api.endpoint}).items()
        }

    def request(self, params: Params, case: Case) -> dict[str, Json]:
        """Return provider, address, query, configured headers and body, without secrets.

        Raises:
            CandidateFault: the case lacks an input, the request names no model, or the model has
                no field for a setting and ``api.request.unsupported`` is ``refuse``.
        """
        return self._prepared(params, case)[0]

    def messages(self, params: Params, case: Case) -> list[Mapping[str, Json]]:
        """Return the messages of a request before their conversion for the provider.

        Raises:
            CandidateFault: the case lacks an input.
        """
        return self._messages(Values(params, case.input))

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the cost of the longest prompt and answer that the request allows.

        Raises:
            CandidateFault: as ``request``.
        """
        request, _ = self._prepared(params, case)
        body, model = mapping(request["body"]), str(request["model"])
        billed_by = self._billing_provider(params)
        price = self.prices.find(billed_by, model) or self.prices.facts(billed_by, model)
        prompt, longest = prompt_bound(body), output_limit(body)
        if longest is None:
            longest = price.max_output_tokens
        answers = None if longest is None else longest * n_answers(body)
        usd = self._worst_usd(billed_by, model, body, answers)
        # Tools that the provider runs may cause it to bill the prompt several times.
        if prompt is None and not body.get("tools"):
            prompt = price.context_tokens
        tokens = None if prompt is None or answers is None else prompt + answers
        return WorstCase(usd=usd, tokens=tokens)

    async def call(self, params: Params, case: Case, on_text: TextCallback | None = None) -> Reply:
        """Call the model once; see ``answer``."""
        return (await self.answer(params, case, on_text))[0]

    async def answer(
        self,
        params: Params,
        case: Case,
        on_text: TextCallback | None = None,
        *,
        fields: Mapping[str, Json] | None = None,
    ) -> tuple[Reply, ChatCompletion]:
        """Call the model once; the value is the text or tool calls of its first choice.

        Args:
            params: Candidate's parameters.
            case: Test case.
            on_text: Callback for each piece of text, or for the whole text of an unstreamed
                answer; the answer is streamed if the provider can.
            fields: Fields in the provider's form that override the request's; ``model`` changes
                the model but not its price.

        Raises:
            CandidateFault: a refusal, an empty answer, or a 4xx.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or denied access.
        """
        request, mapped = self._prepared(params, case)
        model, query = str(request["model"]), mapping(request["query"])
        values, passed = fields or {}, 0

        def pass_on(text: str) -> None:
            nonlocal passed
            passed += 1
            if on_text is not None:
                on_text(text)

        body = {**mapped.body, **values}
        delivery = Delivery(
            query=query,
            stream=self._api.request.stream or on_text is not None,
            on_text=None if on_text is None else pass_on,
        )
        sent_model = str(values.get("model", model))
        completion = await self._chat(params).send(body, model=sent_model, delivery=delivery)
        is_broken = isinstance(completion.fault, InfrastructureFault)
        if on_text is not None and not passed and completion.text and not is_broken:
            on_text(completion.text)
        is_apart = is_priced_apart(body)
        cost_usd, price_version = self._cost(params, model, completion, is_apart=is_apart)
        fault = completion.failure(cost_usd=cost_usd, price_version=price_version)
        if fault is not None:
            raise fault
        reply = Reply(
            cost_usd=cost_usd,
            price_version=price_version,
            provider=self.provider,
            dropped=mapped.dropped,
            **fields_of(completion, "value", "latency_ms", "first_token_ms", "usage", "model"),
            **fields_of(completion, "finish_reason", "thinking"),
        )
        return reply, completion

    def forwarded(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> PaidCall:
        """Return the call that sends a body in OpenAI's form unchanged.

        The value of its reply is the whole answer.

        Args:
            path: Path below the base URL: ``responses`` or ``embeddings``.
            body: Request body with a ``model``.
            on_event: Callback for each event of a streamed answer.

        Raises:
            CandidateFault: ``api.models`` has no such model.
        """
        model = as_text(body["model"])
        chat, billed_by = self._chat({"model": model}), self._billing_provider({"model": model})
        longest = body.get("max_output_tokens") if path == "responses" else 0
        longest = longest if isinstance(longest, int) and longest >= 0 else None

        async def send() -> Reply:
            answer = await chat.forward(path, body, on_event)
            usage, reported_usd = usage_of(answer.raw), reported_cost(answer.raw)
            is_apart = is_priced_apart(body) or is_priced_apart(answer.raw)
            cost_usd, version = self.prices.settled(
                billed_by, model, usage,
                reported_usd=reported_usd if billed_by == "openrouter" else None, is_apart=is_apart,
            )  # fmt: skip
            if answer.fault is not None:
                if usage.total is not None:
                    answer.fault.billed = Billed(
                        usage=usage, cost_usd=cost_usd, price_version=version, model=model
                    )
                raise answer.fault
            return Reply(
                value=answer.raw, latency_ms=answer.latency_ms, usage=usage, cost_usd=cost_usd,
                price_version=version, model=as_text(answer.raw.get("model") or model),
                provider=self.provider,
            )  # fmt: skip

        return PaidCall(
            purpose=path,
            provider=self.provider,
            model=model,
            request={"base_url": chat.base_url, "path": path, "body": dict(body)},
            worst=WorstCase(usd=self._worst_usd(billed_by, model, body, longest)),
            timeout_s=self._api.request.timeout_seconds,
            send=send,
        )

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        for chat in self._chats.values():
            await chat.aclose()

    def _prepared(self, params: Params, case: Case) -> tuple[dict[str, Json], Mapped]:
        """Return the canonical request, and its mapped body with the dropped settings."""
        request, chat = self._api.request, self._chat(params)
        values = Values(params, case.input)
        settings = mapping(values.fill(dict(request.options)))
        settings |= {name: value for name, value in params.items() if name in self._fields}
        model = settings.pop("model", None)
        if not isinstance(model, str):
            raise CandidateFault("no model is named for this request", error_type="no_model")
        mapped = chat.mapped(self._messages(values), model=model, settings=settings)
        check_refused(mapped, model=model, provider=self.provider)
        return {
            "provider": self.provider,
            "base_url": chat.base_url,
            **chat.address(model),
            "query": chat.query
            | {name: values.text(text) for name, text in request.query.items()},
            "headers": dict(request.headers),
            "model": model,
            "stream": request.stream,
            "body": dict(mapped.body),
            # The setting changes the answer, so it is part of the key unless it is the default.
            **({} if request.separate_thinking else {"separate_thinking": False}),
        }, mapped

    def _chat(self, params: Params) -> Provider:
        return self._chats[chosen_model(self._api, params)]

    def _messages(self, values: Values) -> list[Mapping[str, Json]]:
        """Return the messages of a case; demonstrations at the end of a prompt become turns."""
        values, shots = without_shots(values)
        if self.is_conversation:
            return self._conversation(values, shots)
        messages = self._plain_messages(values)
        if not shots or messages[-1]["role"] == "assistant":
            return messages
        n_head = _n_head(messages)
        turns: list[Mapping[str, Json]] = []
        for shot in shots:
            case_input = shot.input(values.case_input)
            if case_input == values.case_input:
                continue  # it would give the answer away
            shown = self._plain_messages(replace(values, case_input=case_input))[n_head:]
            turns += [*shown, {"role": "assistant", "content": shot.assistant}]
        return [*messages[:n_head], *turns, *messages[n_head:]]

    def _conversation(self, values: Values, shots: tuple[Shot, ...]) -> list[Mapping[str, Json]]:
        turns = input_messages(values.case_input)
        n_head = _n_head(turns)
        head = [as_text(message["content"]) for message in turns[:n_head]]
        system = "\n\n".join(text for text in (*head, *self._system_texts(values)) if text.strip())
        messages: list[Mapping[str, Json]] = []
        if system:
            messages.append({"role": "system", "content": system})
        for shot in shots:
            messages += input_messages(shot.input([]))
            messages.append({"role": "assistant", "content": shot.assistant})
        return messages + turns[n_head:]

    def _system_texts(self, values: Values) -> list[str]:
        """Return the configuration's and the candidate's system prompts of a conversation."""
        written = self._api.request.messages
        if written is None:
            return [] if self._system is None else [values.text(f"{{{self._system}}}")]
        return [values.text(m.content) for m in written if m.role in ("system", "developer")]

    def _plain_messages(self, values: Values) -> list[Mapping[str, Json]]:
        written = self._api.request.messages
        if written is not None:
            return [{"role": m.role, "content": values.text(m.content)} for m in written]
        messages: list[Mapping[str, Json]] = []
        if self._system is not None and (text := values.text(f"{{{self._system}}}")):
            messages.append({"role": "system", "content": text})
        return messages + input_messages(values.case_input)

    def _billing_provider(self, params: Params) -> str:
        """Return the provider whose prices apply, by the endpoint's host."""
        return provider_of(self.provider, self._chat(params).base_url)

    def _cost(
        self, params: Params, requested: str, completion: ChatCompletion, *, is_apart: bool
    ) -> tuple[float | None, str | None]:
        """Return an answer's cost and the price version.

        The price of the model that answered applies if it is known, because a requested name may
        be an alias. A configured price of the requested model takes precedence over the table. If
        a compatible server's requested model has no price, the answering model's table price does
        not apply either.
        """
        prices, answered = self.prices, completion.model
        billed_by, model = self._billing_provider(params), requested
        if answered is not None and prices.find(billed_by, answered) is not None:
            versions = [prices.version_of(billed_by, name) for name in (requested, answered)]
            is_known = versions[0] is not None or not billed_by.endswith(COMPATIBLE)
            if versions[1] == CONFIGURED or (versions[0] != CONFIGURED and is_known):
                model = answered
        return prices.settled(
            billed_by,
            model,
            completion.usage,
            reported_usd=completion.cost_usd,
            is_apart=is_apart or is_priced_apart(completion.raw),
        )

    def _worst_usd(
        self, billed_by: str, model: str, body: Mapping[str, Json], longest: int | None
    ) -> float | None:
        """Return the maximum dollars of a call with a body."""
        texts = body.get("input")
        n_prompts = len(texts) if isinstance(texts, list) and "messages" not in body else 1
        prompt = prompt_bound(dict(body))
        return self.prices.worst_case(
            billed_by, model, prompt, longest, max(n_prompts, 1), is_apart=may_exceed_tables(body)
        )


def without_shots(values: Values) -> tuple[Values, tuple[Shot, ...]]:
    """Return values without their prompts' final demonstrations, and these in order."""
    params = dict(values.params)
    shots: list[Shot] = []
    for name, value in values.params.items():
        if isinstance(value, str) and value.rstrip().endswith(END):
            params[name], shot_texts = split(value)
            shots += shot_texts
    return (replace(values, params=params), tuple(shots)) if shots else (values, ())


def _n_head(messages: list[Mapping[str, Json]]) -> int:
    """Return the number of messages before the first that is not a system message."""
    roles = [message["role"] for message in messages]
    return next((i for i, role in enumerate(roles) if role not in ("system", "developer")), 0)


def input_messages(case_input: Json) -> list[Mapping[str, Json]]:
    """Return the messages of a case's input.

    A list of messages is returned unchanged. A mapping with one entry becomes that entry.
    """
    if isinstance(case_input, list) and case_input:
        messages = [m for m in mappings(case_input) if {"role", "content"} <= m.keys()]
        if len(messages) == len(case_input):
            return [*messages]
    if isinstance(case_input, dict) and len(case_input) == 1:
        (only,) = case_input.values()
        if isinstance(only, (str, list)):
            return input_messages(only)
    return [{"role": "user", "content": as_text(case_input)}]
