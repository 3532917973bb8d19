"""Route of one answer to one prompt, by a role."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, StrictInt, model_validator
from starlette.responses import Response

from convergence.service.auth import TOKEN, require
from convergence.service.bodies import Body, Name, json_answer
from convergence.service.chat import (
    INTERACTION_ID,
    check_role,
    end_reason,
    is_printable,
    refusal_of,
    while_connected,
)
from convergence.service.problems import refusals
from convergence_core.errors import EvaluationFault
from convergence_core.feedback.records import ChatMessage
from convergence_core.feedback.roles import DEFAULT
from convergence_core.records import Json
from tasks.chat.logged_chat import ChatPrompt, LoggedChat
from tasks.serving.answers import GeneratedAnswer, as_dict

SOURCE = "generate"
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
            given = getattr(self, name)
            if given is not None and not is_printable(given):
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
            source=SOURCE,
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
        router.add_api_route(
            path,
            generate,
            methods=["POST"],
            responses={200: {"model": GeneratedAnswer}, **refusals(404, 502, 504)},
        )
    return router
