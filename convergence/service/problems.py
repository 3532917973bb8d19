"""Refusals as ``application/problem+json`` (RFC 9457), which never repeat a token."""

import json
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

MEDIA_TYPE = "application/problem+json"
OPENAI_PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/models")
"""Paths in OpenAI's form, whose clients show the reason of an ``error``."""
_ERROR_TYPES = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
}  # fmt: skip
_log = logging.getLogger("convergence.service")


class RequestRefusedError(Exception):
    """Refusal of a request."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        code: str | None = None,
    ) -> None:
        """Store the reason; ``code`` is OpenAI's word for it."""
        self.status, self.detail, self.headers, self.code = status, detail, headers, code
        super().__init__(detail)


class ProblemResponse(Response):
    """Answer that refuses a request."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Build the body; ``more`` adds members to it."""
        self._problem = {
            "title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more
        }  # fmt: skip
        super().__init__(
            json.dumps(self._problem).encode(), status_code=status, headers=dict(headers or {})
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the refusal; at OpenAI's paths it also has OpenAI's form."""
        if scope["path"] in OPENAI_PATHS:
            reasons = [self._problem["detail"], *self._problem.get("errors", ())]
            code = self._problem.get("code")
            error = openai_error(self.status_code, " ".join(reasons), code)
            self.body = json.dumps({**self._problem, "error": error}).encode()
            self.headers["content-length"] = str(len(self.body))
        await super().__call__(scope, receive, send)


def openai_error(status: int, message: str, code: str | None = None) -> dict[str, str | None]:
    """Return a refusal in OpenAI's form; ``code``, if given, is also its type."""
    other = "upstream_error" if status >= 500 else "invalid_request_error"
    return {
        "message": message,
        "type": code or _ERROR_TYPES.get(status, other),
        "param": None,
        "code": code or HTTPStatus(status).name.lower(),
    }


def error_handler(answer: Callable[[Any], ProblemResponse], *, is_logged: bool) -> Any:
    """Return a handler that turns an exception into a refusal.

    Args:
        answer: error → refusal.
        is_logged: whether to log the error, for faults of the service.
    """

    async def handle(_: object, error: Exception) -> ProblemResponse:
        if is_logged:
            _log.error("request failed: %s", error, exc_info=error)
        return answer(error)

    return handle


PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the schema of refusals: those of every route, and these statuses."""
    meanings = {
        400: "The connection closed within the body.",
        401: "No known token.",
        403: "The token lacks the scope, or the decision or answer is another user's.",
        404: "Not found.",
        408: "The body took too long.",
        409: "It conflicts with stored data.",
        413: "The body is too long.",
        422: "The request does not match the schema.",
        429: "Too many requests of this token, or the day's limit of US dollars is reached.",
        502: "The model's provider failed.",
        504: "The model's provider took too long.",
        503: "Too many requests wait, or the store cannot be written.",
    }
    always = (400, 401, 403, 408, 413, 422, 429, 503)
    return {
        status: {"description": meanings[status], "content": PROBLEM}
        for status in (*always, *statuses)
    }
