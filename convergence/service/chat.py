"""Chat routes: completions in OpenAI's form, roles as models, single answers.

They follow the documented form of ``/v1/chat/completions``. The service logs an answer under its
``id`` before it sends the last part. If the client leaves early, the answer is not logged, but the
paid call finishes and counts.
"""

import asyncio
import json
import math
import re
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import APIRouter, Request
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    model_validator,
)
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from convergence.service.auth import TOKEN
from convergence.service.bodies import Body, add_route, check_secret, json_answer, without_secrets
from convergence.service.problems import RequestRefusedError, openai_error
from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from convergence_core.feedback.roles import DEFAULT
from convergence_core.field_types import Features, Name, StrictNumber
from convergence_core.records import Json, Usage, fields_of, sha256_hex
from tasks.chat.conversation import AnswerStream
from tasks.chat.logged_chat import ChatPrompt, LoggedAnswer, LoggedChat, PreparedPrompt
from tasks.chat.paid_answers import SPENT
from tasks.json_values import as_text
from tasks.providers.fields import REQUEST_FIELDS
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.serving.answers import GeneratedAnswer

Result = TypeVar("Result")

SOURCE: Final = "openai"
"""Source of interactions that these routes log."""
INTERACTION_ID: Final = "X-Interaction-Id"
DECISION_ID: Final = "X-Convergence-Decision-Id"
PREFIX: Final = "convergence/"
"""Optional prefix of a model's name, before the system or role."""
_NEUTRAL: Final[Mapping[str, Json]] = {
    "tools": [], "functions": [], "modalities": ["text"], "logprobs": False, "n": 1
}  # fmt: skip
"""Default value of each field that the service omits from the provider's request."""
_PASSED: Final = REQUEST_FIELDS - {"n", "logprobs", "top_logprobs"}
"""Fields that go to the provider unchecked; the provider may reject them."""
_SETTINGS: Final = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "presence_penalty",
    "frequency_penalty", "reasoning_effort",
)  # fmt: skip
_ENDING: Final = (
    "The service shut down before the answer was complete, so it is not logged. Try again."
)
SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CUT: Final = frozenset({"length", "max_tokens", "pause_turn"})
"""Providers' finish reasons of answers that a limit cut."""
DEEPEST: Final = 64
"""Maximum nesting of messages and tools."""
Whole = Annotated[int, Field(strict=True)]


def is_printable(name: str) -> bool:
    """Return whether a name is printable text without blanks at its ends."""
    return bool(name) and name.strip() == name and name.isprintable()


def is_deeper(value: Json, most: int) -> bool:
    """Return whether a value nests lists and mappings more than ``most`` levels deep."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return False
    return most == 0 or any(is_deeper(part, most - 1) for part in value)


class ClientGoneError(RequestRefusedError):
    """The client disconnected before its answer."""


class ContentPart(BaseModel):
    """A part of a message's content. A part other than text goes to the provider unchanged."""

    model_config = ConfigDict(frozen=True, extra="allow")

    type: Name
    text: str | None = None


class CompletionMessage(BaseModel):
    """One message of a conversation. Further fields go to the provider."""

    model_config = ConfigDict(frozen=True, extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    """A string or text parts in a system message. `null` is allowed with `tool_calls`,
    `function_call` and `refusal`.
    """
    tool_calls: list[dict[str, JsonValue]] | None = None
    function_call: dict[str, JsonValue] | None = None
    """Older form of `tool_calls`, sent as one; its result has the role `function`, sent as `tool`."""
    refusal: str | None = None
    """Sent as `content` if that is `null`."""

    @model_validator(mode="after")
    def _has_content(self) -> "CompletionMessage":
        others = self.tool_calls or self.function_call or self.refusal
        if self.content is None and not (self.role == "assistant" and others):
            raise ValueError(
                "`content` must be given, except beside an assistant's `tool_calls`, "
                "`function_call` or `refusal`"
            )
        if self.role == "function" and not (self.model_extra or {}).get("name"):
            raise ValueError("`name` must be given in a message of role `function`")
        if self.role in ("system", "developer") and not isinstance(self.sent["content"], str):
            raise ValueError(f"`content` must be text in a message of role `{self.role}`")
        return self

    @property
    def sent(self) -> dict[str, Json]:
        """The message in the provider's form; text parts are joined."""
        message: dict[str, Json] = self.model_dump(exclude_none=True)
        if self.role == "developer":
            message["role"] = "system"
        if (called := message.pop("function_call", None)) is not None and not self.tool_calls:
            name = as_text((self.function_call or {}).get("name"))
            message["tool_calls"] = [
                {"id": _call_id(name), "type": "function", "function": called}
            ]
        if self.role == "function":
            message |= {"role": "tool", "tool_call_id": _call_id(as_text(message.pop("name", "")))}
        if self.content is None and self.refusal:
            message["content"] = message.pop("refusal")
        if isinstance(self.content, list) and all(part.type == "text" for part in self.content):
            message["content"] = "".join(part.text or "" for part in self.content)
        return {"content": None, **message}


def _call_id(name: str) -> str:
    """Return the id of a named call and its result, within the providers' 40 characters."""
    return f"call_{sha256_hex(name)[:24]}"


class StreamOptions(BaseModel):
    """What a stream holds in addition to the answer."""

    include_usage: StrictBool = False


class CompletionBody(BaseModel):
    """A conversation to continue. OpenAI's other fields go to the provider or are refused by name."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: Name
    """`convergence/SYSTEM`, or the role that answers; `GET /v1/models` lists them."""
    messages: Annotated[list[CompletionMessage], Field(min_length=1)]
    """The last message has the role `user` or `tool`."""
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: Name | None = None
    """User who gets the answer. Absent: the token's name."""
    metadata: Features | None = None
    """`conversation_id` names the conversation; all other entries are features that choose the arm."""
    temperature: StrictNumber | None = None
    top_p: StrictNumber | None = None
    max_tokens: Whole | None = None
    max_completion_tokens: Whole | None = None
    stop: str | list[str] | None = None
    seed: Whole | None = None
    presence_penalty: StrictNumber | None = None
    frequency_penalty: StrictNumber | None = None
    reasoning_effort: Name | None = None

    @model_validator(mode="after")
    def _asks_for_one_text(self) -> "CompletionBody":
        if unserved := sorted(self._extra.keys() - _PASSED):
            raise ValueError(f"`{unserved[0]}` must be left out: this endpoint does not serve it")
        without_secrets(self)
        for name in (self.user, self.conversation_id):
            if name is not None and not (isinstance(name, str) and is_printable(name)):
                raise ValueError(
                    "`user` and `conversation_id` must be printable, without leading or trailing blanks"
                )
        check_secret("conversation_id", self.conversation_id)
        sent: list[Json] = [[message.sent for message in self.messages], self._extra]
        if is_deeper(sent, DEEPEST):
            raise ValueError(
                f"`messages` and `tools` must be nested at most {DEEPEST} levels deep"
            )
        if SURROGATE.search(json.dumps(sent, ensure_ascii=False, allow_nan=False)):
            raise ValueError("`messages` must be Unicode text, without halves of surrogate pairs")
        if self.messages[-1].role not in ("user", "tool", "function"):
            raise ValueError("`messages` must end with a message of role `user` or `tool`")
        return self

    @property
    def _extra(self) -> dict[str, Json]:
        """Fields without their own attribute that change the answer."""
        extras = (self.model_extra or {}).items()
        return {k: v for k, v in extras if v is not None and v != _NEUTRAL.get(k)}

    @property
    def conversation_id(self) -> Any:
        """Name of the conversation; a string after validation."""
        return (self.metadata or {}).get("conversation_id")

    @property
    def settings(self) -> dict[str, Json]:
        """Fields for the provider."""
        settings = {name: v for name, v in fields_of(self, *_SETTINGS).items() if v is not None}
        return {**settings, **self._extra}


class ListedModel(BaseModel):
    """A role, as a model of OpenAI's list."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    adapter_version: str | None
    """Adapter that answers for it; `null` if the configured model does."""


class ModelsAnswer(BaseModel):
    """The system and all roles."""

    object: Literal["list"]
    data: list[ListedModel]


class CompletionAnswer(BaseModel):
    """An answer in OpenAI's form."""

    id: str
    """Id of the logged interaction: rate it by `/v1/interactions/{id}/rating`."""
    object: Literal["chat.completion"]
    created: int
    model: str
    """Provider's name of the model."""
    system_fingerprint: str | None
    """Version of the adapter that answered, `null` if none did. In a stream, only the last events
    hold it.
    """
    choices: list[dict[str, JsonValue]]
    usage: dict[str, JsonValue] | None
    decision_id: str | None
    """Id that rewards the chosen arm; `null` if no arm is active or a fallback answered."""


class _Handlers:
    """Route handlers. Their docstrings are the schema's descriptions."""

    def __init__(self, chat: LoggedChat) -> None:
        self._chat = chat

    async def models(self) -> Response:
        """List the roles in the form of OpenAI's models. Scope: chat."""
        versions = await asyncio.to_thread(self._chat.active_versions)
        common = {"object": "model", "created": 0, "owned_by": "convergence"}
        data = [
            {
                "id": f"{PREFIX}{role}" if role == self._chat.system else role,
                **common,
                "adapter_version": versions.get(role),
            }
            for role in self._chat.role_names
        ]
        return json_answer({"object": "list", "data": data})

    async def complete(self, body: CompletionBody, request: Request) -> Response:
        """Answer a conversation in OpenAI's form; logged before it ends. Scope: chat.

        With `stream`, it sends server-sent events and ends with `[DONE]`. The `id` and the header
        `X-Interaction-Id` are the interaction's.
        """
        role = body.model.removeprefix(PREFIX)
        check_role(self._chat, "model", role)
        prompt = ChatPrompt(
            messages=tuple(message.sent for message in body.messages),
            role=role,
            user_id=body.user or request.scope[TOKEN].name,
            source=SOURCE,
            conversation_id=body.conversation_id,
            settings=body.settings,
            context={k: v for k, v in (body.metadata or {}).items() if k != "conversation_id"},
        )
        try:
            prepared = await self._chat.prepare(prompt)
            if body.stream:
                has_usage = body.stream_options is not None and body.stream_options.include_usage
                return _CompletionStream(self._chat, prepared, has_usage=has_usage)
            used = [prepared]
            answer = await while_connected(
                request.receive, self._chat.write(prepared, len, used.append)
            )
        except EvaluationFault as fault:
            raise refusal_of(fault) from None
        frame = _frame(used[-1], "chat.completion", answer.interaction.created_us // 1_000_000)
        message: dict[str, Any] = {
            "role": "assistant", "content": answer.text, "refusal": None
        }  # fmt: skip
        if answer.tool_calls:
            message |= {"content": answer.text or None, "tool_calls": answer.tool_calls}
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": end_reason(answer)
        }  # fmt: skip
        version = answer.interaction.adapter_version
        made = json_answer(
            {
                **frame,
                "system_fingerprint": version,
                "choices": [choice],
                "usage": _usage(answer.usage),
            }
        )
        made.headers.update(_id_headers(used[-1]))
        return made


class EventStream(Response):
    """Answer as server-sent events. A failure before the first event refuses the request."""

    closing = b""
    """Bytes that end a complete stream."""

    def __init__(self) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-cache"
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer. A disconnect of the client cancels it."""
        del scope
        try:
            await while_connected(receive, self._stream(send))
        except RequestRefusedError as refusal:
            if not self._has_begun:
                raise
            if not isinstance(refusal, ClientGoneError):
                await self._fail(send, refusal)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        async with aclosing(self._events()) as events:
            try:
                async for event in events:
                    if not self._has_begun:
                        self._has_begun = True
                        await send(start)
                    await send_event(send, event)
            except EvaluationFault as fault:
                raise refusal_of(fault) from None
        await send({"type": "http.response.body", "body": self.closing, "more_body": False})

    async def _fail(self, send: Send, refusal: RequestRefusedError) -> None:
        error = openai_error(refusal.status, refusal.detail, refusal.code)
        await send_event(send, {"error": error})

    @abstractmethod
    def _events(self) -> AsyncGenerator[Mapping[str, Any], None]:
        """Yield the events; the first starts the answer."""


class _CompletionStream(EventStream):
    """A completion in pieces."""

    closing = b"data: [DONE]\n\n"

    def __init__(self, chat: LoggedChat, prepared: PreparedPrompt, *, has_usage: bool) -> None:
        super().__init__()
        self._chat, self._used, self._has_usage = chat, [prepared], has_usage
        self._frame: dict[str, Json] = {}

    async def _events(self) -> AsyncGenerator[Mapping[str, Any], None]:
        write = partial(self._chat.write, self._used[0], on_fallback=self._used.append)
        async with AnswerStream(write) as stream:
            first = await anext(stream, None)
            self._frame = _frame(self._used[-1], "chat.completion.chunk", int(time.time()))
            self.headers.update(_id_headers(self._used[-1]))
            yield self._chunk({"role": "assistant", "content": first or ""})
            async for piece in stream:
                yield self._chunk({"content": piece})
            answer = stream.ending
        self._frame["system_fingerprint"] = answer.interaction.adapter_version
        if answer.tool_calls:
            calls: list[Json] = [{"index": i, **call} for i, call in enumerate(answer.tool_calls)]
            yield self._chunk({"tool_calls": calls})
        yield self._chunk({}, end_reason(answer))
        if self._has_usage:
            yield {**self._frame, "choices": [], "usage": _usage(answer.usage)}

    def _chunk(self, delta: Mapping[str, Json], reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more = {"usage": None} if self._has_usage else {}
        return {**self._frame, "choices": [choice], **more}


async def send_event(send: Send, value: Mapping[str, Any]) -> None:
    """Send one event, named by the value's ``type`` if it has one."""
    data, name = json.dumps(value, allow_nan=False), value.get("type")
    body = f"{f'event: {name}' + chr(10) if name else ''}data: {data}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


def check_role(chat: LoggedChat, key: str, role: str) -> None:
    """Raise unless a request's field names a role.

    Raises:
        RequestRefusedError: the role is unknown.
    """
    known = chat.role_names
    if role not in known:
        detail = f"`{key}` must name a role, and known are {', '.join(known)}."
        raise RequestRefusedError(404, detail)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of work, which a disconnect of the client cancels.

    Raises:
        ClientGoneError: the client disconnected.
        RequestRefusedError: the service shut down and its grace period ended first.
    """

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.create_task(work), asyncio.create_task(gone())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError(400, "The connection closed before the answer.")
    except asyncio.CancelledError:
        raise RequestRefusedError(503, _ENDING, {"Retry-After": "5"}) from None
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait({working, leaving})


def _frame(prepared: PreparedPrompt, kind: str, created: int) -> dict[str, Json]:
    identity = prepared.prompt.interaction_id
    decision_id = None if prepared.chosen is None else prepared.chosen.decision_id
    return {
        "id": identity, "object": kind, "created": created, "model": prepared.model,
        "decision_id": decision_id,
    }  # fmt: skip


def _id_headers(prepared: PreparedPrompt) -> dict[str, str]:
    headers = {INTERACTION_ID: prepared.prompt.interaction_id}
    if prepared.chosen is not None and prepared.chosen.decision_id is not None:
        headers[DECISION_ID] = prepared.chosen.decision_id
    return headers


def end_reason(answer: LoggedAnswer) -> str:
    """Return why an answer ended, in OpenAI's words."""
    if (answer.finish_reason or "").lower() in _CUT:
        return "length"  # also of a tool call, whose arguments may be incomplete
    return "tool_calls" if answer.tool_calls else "stop"


def _usage(usage: Usage) -> dict[str, Json] | None:
    """Return the token counts that the provider reported; ``None`` if it reported no totals."""
    if usage.prompt_tokens is None or usage.completion_tokens is None:
        return None
    parts = {
        "prompt_tokens_details": fields_of(usage, "cached_tokens", "cache_write_tokens"),
        "completion_tokens_details": fields_of(usage, "reasoning_tokens"),
    }
    known = {
        name: {k: n for k, n in part.items() if n is not None} for name, part in parts.items()
    }
    return {
        **fields_of(usage, "prompt_tokens", "completion_tokens"),
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        **{name: part for name, part in known.items() if part},
    }


def refusal_of(fault: EvaluationFault) -> RequestRefusedError:
    """Return the refusal of a request that the model did not answer."""
    if fault.error_type == SPENT:
        # OpenAI's clients repeat a 429 unless this header forbids it.
        return RequestRefusedError(
            429, str(fault), {"x-should-retry": "false"}, code="insufficient_quota"
        )
    is_refused = isinstance(fault, CandidateFault)
    reason = f": {fault.details}" if is_refused and fault.details else ""
    detail = one_line(f"The model gave no answer: {fault}{reason}", 1_000, redacted_text)
    if is_refused:
        return RequestRefusedError(422, detail)
    status = {"timeout": 504, "http_429": 503}.get(fault.error_type, 502)
    pause_s = fault.retry_after_s if isinstance(fault, InfrastructureFault) else None
    if pause_s is None and status == 503:
        pause_s = 5.0
    headers = {} if pause_s is None else {"Retry-After": str(math.ceil(pause_s))}
    return RequestRefusedError(status, detail, headers)


def chat_routes(chat: LoggedChat) -> APIRouter:
    """Return the routes of a chat, which the application closes."""
    handlers, router = _Handlers(chat), APIRouter(tags=["chat"])
    add_route(router, "chat", "GET", "/v1/models", handlers.models, ModelsAnswer)
    streamed = {200: {"model": CompletionAnswer, "content": {"text/event-stream": {}}}}
    add_route(
        router, "chat", "POST", "/v1/chat/completions", handlers.complete, CompletionAnswer, 404, 502, 504,
        responses=streamed,
    )  # fmt: skip
    return router


GENERATED: Final = "generate"
"""Source of interactions that this route logs."""


class GenerateBody(Body):
    """A prompt to answer."""

    prompt: Annotated[str, Field(min_length=1)]
    role: Name = DEFAULT
    """Persona that answers; `GET /v1/models` lists them."""
    user: Name | None = None
    """User who gets the answer. Absent: the token's name."""
    conversation_id: Name | None = None
    """Conversation that the prompt belongs to."""
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    """Longest answer. Absent: the model's limit. A limit of the configuration takes precedence."""

    @model_validator(mode="after")
    def _has_names(self) -> "GenerateBody":
        for name in ("user", "conversation_id"):
            value = getattr(self, name)
            if value is not None and not is_printable(value):
                raise ValueError(f"`{name}` must be printable, without leading or trailing blanks")
        return self


def generation_routes(chat: LoggedChat) -> APIRouter:
    """Return the routes of single answers; the application closes the chat."""
    router = APIRouter(tags=["chat"])

    async def generate(body: GenerateBody, request: Request) -> Response:
        """Answer a prompt; logged under its `interaction_id` when this answers. Scope: chat.

        The prompt starts a conversation without earlier turns; `/v1/chat/completions` takes whole
        ones.
        """
        check_role(chat, "role", body.role)
        settings: dict[str, Json] = (
            {} if body.max_tokens is None else {"max_tokens": body.max_tokens}
        )
        prompt = ChatPrompt(
            messages=({"role": "user", "content": body.prompt},),
            role=body.role,
            user_id=body.user or request.scope[TOKEN].name,
            source=GENERATED,
            conversation_id=body.conversation_id,
            settings=settings,
        )
        try:
            prepared = await chat.prepare(prompt)
            answer = await while_connected(request.receive, chat.write(prepared, len))
        except EvaluationFault as fault:
            raise refusal_of(fault) from None
        logged = answer.interaction
        generated = GeneratedAnswer(
            **fields_of(
                logged, "interaction_id", "adapter_version", "n_input_tokens", "n_output_tokens"
            ),
            role=body.role,
            response=answer.text,
            model=prepared.model,
            finish_reason=end_reason(answer),
        )
        made = json_answer(generated)
        made.headers[INTERACTION_ID] = logged.interaction_id
        return made

    for path in ("/v1/generate", "/generate"):
        add_route(router, "chat", "POST", path, generate, GeneratedAnswer, 404, 502, 504)
    return router
