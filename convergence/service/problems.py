"""Refusals as ``application/problem+json`` (RFC 9457); none repeats a token."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

MEDIA_TYPE = "application/problem+json"


class RefusedError(Exception):
    """A request that is not served."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        *,
        errors: list[str] | None = None,
    ) -> None:
        """Say why; ``errors`` are places and rules of a body."""
        self.status, self.detail, self.headers, self.errors = status, detail, headers, errors
        super().__init__(detail)


class ProblemResponse(Response):
    """A refusal."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        """Say what is wrong; ``more`` are further members."""
        body = {"title": HTTPStatus(status).phrase, "status": status, "detail": detail, **more}
        super().__init__(
            json.dumps(body).encode(), status_code=status, headers=dict(headers or {})
        )
