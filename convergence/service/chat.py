"""Routes of a chat: completions in OpenAI's form, roles as models, single answers.

Checked against the documented form of ``/v1/chat/completions``. An answer is logged before its end is sent,
under its ``id``; one whose client goes away before the end is cancelled and not logged.
"""

import asyncio
import json
import re
import time
from collections.abc import Coroutine, Mapping
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

from convergence.service.auth import TOKEN, require
from convergence.service.bodies import Body, check_secret, json_answer, without_secrets
from convergence.service.problems import RequestRefusedError, add_route, openai_error
from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.feedback.records import ChatMessage, Interaction
from convergence_core.feedback.roles import DEFAULT
from convergence_core.field_types import Name, StrictNumber
from convergence_core.records import Json, fields_of
from tasks.chat.conversation import AnswerStream
from tasks.chat.logged_chat import ChatPrompt, LoggedAnswer, LoggedChat, PreparedPrompt
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line
from tasks.serving.answers import GeneratedAnswer, as_dict

Result = TypeVar("Result")

SOURCE: Final = "openai"
"""Source of what is logged here."""
INTERACTION_ID: Final = "X-Interaction-Id"
_NOT_SERVED: Final[Mapping[str, tuple[Json, ...]]] = {
    "tools": ([],),
    "functions": ([],),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
    "logprobs": (False,),
    "n": (1,),
}
"""Field that would change what an answer is → its values that change nothing."""
_SETTINGS: Final = (
    "temperature", "top_p", "max_tokens", "max_completion_tokens", "stop", "seed", "presence_penalty",
    "frequency_penalty", "reasoning_effort",
)  # fmt: skip
_ENDING: Final = (
    "The service ends, and the answer was not whole by then; it is not logged. Ask again."
)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_CUT: Final = frozenset({"length", "max_tokens"})
"""Reasons for the end, in providers' words, of answers that were cut by their limit."""
Whole = Annotated[int, Field(strict=True)]


def is_printable(name: str) -> bool:
    """Return whether a name is a printable text without blanks at its ends."""
    return bool(name) and name.strip() == name and name.isprintable()


class ClientGoneError(RequestRefusedError):
    """The client went away before its answer."""


class TextPart(BaseModel):
    """A part of a message's content; texts alone are answered."""

    model_config = ConfigDict(frozen=True)

    type: Literal["text"]
    text: str


class CompletionMessage(BaseModel):
    """One message of a conversation."""

    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    def logged(self) -> ChatMessage:
        """Return it as it is logged."""
        role = "system" if self.role == "developer" else self.role
        if isinstance(self.content, str):
            return ChatMessage(role=role, content=self.content)
        return ChatMessage(role=role, content="".join(part.text for part in self.content))


class StreamOptions(BaseModel):
    """What a stream holds beside the answer."""

    include_usage: StrictBool = False


class CompletionBody(BaseModel):
    """A conversation to go on with. Fields of OpenAI's that are not named here count for nothing."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: Name
    """The role that answers; `GET /v1/models` lists them."""
    messages: Annotated[list[CompletionMessage], Field(min_length=1)]
    """The last one is the user's."""
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    user: Name | None = None
    """Whom it is answered. Absent: the token's name."""
    metadata: dict[Name, Annotated[str, Field(max_length=2_000)]] | None = None
    """`conversation_id` names the conversation."""
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
        for name, value in (self.model_extra or {}).items():
            if name in _NOT_SERVED and value is not None and value not in _NOT_SERVED[name]:
                raise ValueError(f"`{name}` must be left out: an answer here is one text")
        without_secrets(self)
        conversation_id = (self.metadata or {}).get("conversation_id")
        check_secret("conversation_id", conversation_id)
        for given in (self.user, conversation_id):
            if given is not None and not is_printable(given):
                raise ValueError(
                    "`user` and `conversation_id` must be printable texts without blanks at their ends"
                )
        if any(_SURROGATE.search(message.logged().content) for message in self.messages):
            raise ValueError("`messages` must be Unicode text, without halves of surrogate pairs")
        if self.messages[-1].role != "user":
            raise ValueError("`messages` must end with one of the user's")
        return self

    @property
    def settings(self) -> dict[str, Json]:
        """Fields for the provider."""
        given = fields_of(self, *_SETTINGS)
        return {name: value for name, value in given.items() if value is not None}


class ListedModel(BaseModel):
    """A role, as a model of OpenAI's list."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    adapter_version: str | None
    """The adapter that answers for it. `null`: the configured model does."""


class ModelsAnswer(BaseModel):
    """All roles."""

    object: Literal["list"]
    data: list[ListedModel]


class CompletionAnswer(BaseModel):
    """An answer in OpenAI's form."""

    id: str
    """Of the logged interaction: rate it by `/v1/interactions/{id}/rating`."""
    object: Literal["chat.completion"]
    created: int
    model: str
    """That was asked, by the name that its provider has for it."""
    system_fingerprint: str | None
    """Version of the adapter that answered; of a stream its last events have it. `null`: none did."""
    choices: list[dict[str, JsonValue]]
    usage: dict[str, int] | None


class _Handlers:
    """Handlers of the routes; their docstrings are the schema's descriptions."""

    def __init__(self, chat: LoggedChat) -> None:
        self._chat = chat

    async def models(self, request: Request) -> Response:
        """List the roles, as models of OpenAI's form. Scope: chat."""
        require(request, "chat")
        versions = await asyncio.to_thread(self._chat.active_versions)
        common = {"object": "model", "created": 0, "owned_by": "convergence"}
        data = [
            {"id": role, **common, "adapter_version": versions.get(role)}
            for role in self._chat.role_names
        ]
        return json_answer({"object": "list", "data": data})

    async def complete(self, body: CompletionBody, request: Request) -> Response:
        """Answer a conversation, in OpenAI's form; logged before it ends. Scope: chat.

        With `stream` it comes as server-sent events, the last one `[DONE]`. The `id` is the interaction's,
        as the header `X-Interaction-Id` is.
        """
        require(request, "chat")
        check_role(self._chat, "model", body.model)
        prompt = ChatPrompt(
            messages=tuple(message.logged() for message in body.messages),
            role=body.model,
            user_id=body.user or request.scope[TOKEN].name,
            source=SOURCE,
            conversation_id=(body.metadata or {}).get("conversation_id"),
            settings=body.settings,
        )
        try:
            prepared = await self._chat.prepare(prompt)
            if body.stream:
                has_usage = body.stream_options is not None and body.stream_options.include_usage
                return _EventStream(self._chat, prepared, has_usage=has_usage)
            answer = await while_connected(request.receive, self._chat.write(prepared, len))
        except EvaluationFault as fault:
            raise refusal_of(fault) from None
        frame = _frame(prepared, "chat.completion", answer.interaction.created_us // 1_000_000)
        message = {"role": "assistant", "content": answer.text, "refusal": None}
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": end_reason(answer)
        }  # fmt: skip
        version = answer.interaction.adapter_version
        made = json_answer(
            {
                **frame,
                "system_fingerprint": version,
                "choices": [choice],
                "usage": _usage(answer.interaction),
            }
        )
        made.headers[INTERACTION_ID] = prompt.interaction_id
        return made


class _EventStream(Response):
    """An answer as server-sent events; what fails before its first piece is refused as any request."""

    def __init__(self, chat: LoggedChat, prepared: PreparedPrompt, *, has_usage: bool) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["Cache-Control"] = "no-cache"
        self.headers[INTERACTION_ID] = prepared.prompt.interaction_id
        self._chat, self._prepared, self._has_usage = chat, prepared, has_usage
        self._frame = _frame(prepared, "chat.completion.chunk", int(time.time()))
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; a client that goes away cancels it."""
        del scope
        try:
            await while_connected(receive, self._stream(send))
        except RequestRefusedError as refusal:
            if not self._has_begun:
                raise
            if not isinstance(refusal, ClientGoneError):
                await _event(send, {"error": openai_error(refusal.status, refusal.detail)})
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _stream(self, send: Send) -> None:
        async with AnswerStream(partial(self._chat.write, self._prepared)) as stream:
            try:
                first = await anext(stream, None)
            except EvaluationFault as fault:
                raise refusal_of(fault) from None
            self._has_begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._send(send, {"role": "assistant", "content": first or ""})
                async for piece in stream:
                    await self._send(send, {"content": piece})
                await self._end(send, stream.ending)
            except Exception as error:
                if not isinstance(error, EvaluationFault):
                    raise
                refused = refusal_of(error)
                await _event(send, {"error": openai_error(refused.status, refused.detail)})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(
        self, send: Send, delta: Mapping[str, Json], reason: str | None = None
    ) -> None:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        more = {"usage": None} if self._has_usage else {}
        await _event(send, {**self._frame, "choices": [choice], **more})

    async def _end(self, send: Send, answer: LoggedAnswer) -> None:
        self._frame["system_fingerprint"] = answer.interaction.adapter_version
        await self._send(send, {}, end_reason(answer))
        if self._has_usage:
            usage = _usage(answer.interaction)
            await _event(send, {**self._frame, "choices": [], "usage": usage})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": True})


async def _event(send: Send, value: Mapping[str, Any]) -> None:
    data = json.dumps(value, allow_nan=False)
    body = f"data: {data}\n\n".encode()
    await send({"type": "http.response.body", "body": body, "more_body": True})


def check_role(chat: LoggedChat, key: str, role: str) -> None:
    """Make sure that a field of a request names a role.

    Raises:
        RequestRefusedError: it names none.
    """
    known = chat.role_names
    if role not in known:
        detail = f"`{key}` must name a role, and known are {', '.join(known)}."
        raise RequestRefusedError(404, detail)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Return what work does, cancelled when the client goes away.

    Raises:
        ClientGoneError: it went away; nobody reads that.
        RequestRefusedError: the service ends, and the answer did not within its grace.
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
    interaction_id = prepared.prompt.interaction_id
    return {"id": interaction_id, "object": kind, "created": created, "model": prepared.model}


def end_reason(answer: LoggedAnswer) -> str:
    """Return why an answer ended, in OpenAI's words."""
    return "length" if (answer.finish_reason or "").lower() in _CUT else "stop"


def _usage(interaction: Interaction) -> dict[str, Json] | None:
    """Return the tokens; ``None``: the provider told none."""
    if interaction.n_input_tokens is None or interaction.n_output_tokens is None:
        return None
    return {
        "prompt_tokens": interaction.n_input_tokens,
        "completion_tokens": interaction.n_output_tokens,
        "total_tokens": interaction.n_input_tokens + interaction.n_output_tokens,
    }


def refusal_of(fault: EvaluationFault) -> RequestRefusedError:
    """Return how a request is refused that the model did not answer."""
    detail = one_line(f"The model gave no answer: {fault}", 1_000, redacted_text)
    if isinstance(fault, CandidateFault):
        return RequestRefusedError(422, detail)
    if fault.error_type == "timeout":
        return RequestRefusedError(504, detail)
    if fault.error_type == "http_429":
        return RequestRefusedError(503, detail, {"Retry-After": "5"})
    return RequestRefusedError(502, detail)


def chat_routes(chat: LoggedChat) -> APIRouter:
    """Return the routes; the application closes the chat."""
    handlers, router = _Handlers(chat), APIRouter(tags=["chat"])
    add_route(router, "GET", "/v1/models", handlers.models, ModelsAnswer)
    streamed = {200: {"model": CompletionAnswer, "content": {"text/event-stream": {}}}}
    add_route(
        router, "POST", "/v1/chat/completions", handlers.complete, CompletionAnswer, 404, 502, 504,
        responses=streamed,
    )  # fmt: skip
    return router


GENERATED: Final = "generate"
"""Source of what is logged here."""


class GenerateBody(Body):
    """A prompt to be answered."""

    prompt: Annotated[str, Field(min_length=1)]
    role: Name = DEFAULT
    """Persona that answers; `GET /v1/models` lists them."""
    user: Name | None = None
    """Whom it is answered. Absent: the token's name."""
    conversation_id: Name | None = None
    """Names the conversation that it belongs to."""
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    """Longest answer. Absent: the model's own; where the configuration sets it, that counts."""

    @model_validator(mode="after")
    def _has_names(self) -> "GenerateBody":
        for name in ("user", "conversation_id"):
            value = getattr(self, name)
            if value is not None and not is_printable(value):
                raise ValueError(f"`{name}` must be a printable text without blanks at its ends")
        return self


def generation_routes(chat: LoggedChat) -> APIRouter:
    """Return the routes; the application closes the chat."""
    router = APIRouter(tags=["chat"])

    async def generate(body: GenerateBody, request: Request) -> Response:
        """Answer a prompt; logged when this answers, under its `interaction_id`. Scope: chat.

        It is a conversation's first turn, without those before; `/v1/chat/completions` takes whole ones.
        """
        require(request, "chat")
        check_role(chat, "role", body.role)
        settings: dict[str, Json] = (
            {} if body.max_tokens is None else {"max_tokens": body.max_tokens}
        )
        prompt = ChatPrompt(
            messages=(ChatMessage(role="user", content=body.prompt),),
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
            interaction_id=logged.interaction_id,
            role=body.role,
            response=answer.text,
            model=prepared.model,
            adapter_version=logged.adapter_version,
            finish_reason=end_reason(answer),
            n_input_tokens=logged.n_input_tokens,
            n_output_tokens=logged.n_output_tokens,
        )
        made = json_answer(as_dict(generated))
        made.headers[INTERACTION_ID] = logged.interaction_id
        return made

    for path in ("/v1/generate", "/generate"):
        add_route(router, "POST", path, generate, GeneratedAnswer, 404, 502, 504)
    return router
