"""Routes that forward to the provider unchanged: responses and embeddings.

The ledger and the chat's limits cover these calls. Their answers are not logged, and no arm gives
them.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, JsonValue, StrictBool, model_validator
from starlette.responses import Response
from starlette.types import Send

from convergence.service.bodies import add_route, json_answer
from convergence.service.chat import (
    DEEPEST,
    PREFIX,
    SURROGATE,
    EventStream,
    is_deeper,
    refusal_of,
    while_connected,
)
from convergence.service.problems import RequestRefusedError
from convergence_core.errors import EvaluationFault
from convergence_core.field_types import Name
from convergence_core.records import Json
from tasks.chat.conversation import AnswerStream
from tasks.chat.logged_chat import LoggedChat
from tasks.json_values import mapping
from tasks.secrets.process_redaction import without_known_keys, without_known_secrets
from tasks.secrets.redaction import redact_json


class ProviderBody(BaseModel):
    """A request to the provider, which gets all fields unchanged."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    model: Name
    """Provider's model; neither a system nor a role."""
    input: JsonValue = None
    stream: StrictBool | None = None
    background: StrictBool | None = None

    @model_validator(mode="after")
    def _is_for_the_provider(self) -> "ProviderBody":
        if self.model.startswith(PREFIX):
            raise ValueError(
                f"`model` must be the provider's, but got {self.model!r}. Arms answer /v1/chat/completions"
            )
        if self.background:
            raise ValueError("`background` must be left out: such an answer tells no cost")
        if is_deeper([self.input, self.model_extra or {}], DEEPEST):
            raise ValueError(f"the body must be nested at most {DEEPEST} levels deep")
        try:
            text = json.dumps([self.input, self.model_extra], ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise ValueError("the numbers of the body must be finite") from None
        if SURROGATE.search(text):
            raise ValueError("the body must be Unicode text, without halves of surrogate pairs")
        return self


class _ForwardedStream(EventStream):
    """The provider's events, one by one."""

    def __init__(self, chat: LoggedChat, path: str, body: dict[str, Json]) -> None:
        super().__init__()
        self._send_on = partial(chat.forward, path, body)
        self._has_failed = False

    async def _events(self) -> AsyncGenerator[Mapping[str, Any], None]:
        async with AnswerStream(self._send_on) as stream:
            async for event in stream:
                self._has_failed = self._has_failed or _is_error(event)
                yield without_keys(event)
            if not self._has_begun:  # the provider sent it whole
                yield without_keys(stream.ending)

    async def _fail(self, send: Send, refusal: RequestRefusedError) -> None:
        if not self._has_failed:  # otherwise the provider's error has already gone to the client
            await super()._fail(send, refusal)


def _is_error(answer: Mapping[str, Json]) -> bool:
    response = mapping(answer.get("response"))
    return bool(answer.get("error") or answer.get("type") == "error" or response.get("error"))


def without_keys(answer: Mapping[str, Json]) -> Any:
    """Redact our secrets in a provider's answer; those made of words only in errors."""
    redact = without_known_secrets if _is_error(answer) else without_known_keys
    return redact_json(dict(answer), redact)


def passthrough_routes(chat: LoggedChat) -> APIRouter:
    """Return the forwarding routes; the application closes the chat."""
    router = APIRouter(tags=["chat"])

    async def forwarded(path: str, body: ProviderBody, request: Request) -> Response:
        sent: dict[str, Json] = body.model_dump(exclude_unset=True)
        try:
            if body.stream:
                return _ForwardedStream(chat, path, sent)
            answer = await while_connected(request.receive, chat.forward(path, sent))
            return json_answer(without_keys(answer))
        except EvaluationFault as fault:
            raise refusal_of(fault) from None

    async def responses(body: ProviderBody, request: Request) -> Response:
        """Answer with a provider's model in the form of OpenAI's responses. Scope: chat.

        The provider gets the body unchanged, and the client gets its answer unchanged; with
        `stream`, event by event.
        """
        return await forwarded("responses", body, request)

    async def embeddings(body: ProviderBody, request: Request) -> Response:
        """Embed texts with a provider's model, in OpenAI's form. Scope: chat."""
        return await forwarded("embeddings", body, request)

    for handler in (responses, embeddings):
        path = f"/v1/{handler.__name__}"
        add_route(router, "chat", "POST", path, handler, dict[str, Any], 404, 502, 504)
    return router
