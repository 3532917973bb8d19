"""Faults of providers, by their error codes beyond the HTTP status.

Gemini answers 400 to an unknown key. OpenAI answers 400 if the account reached its limit, and
Anthropic if it has no credit. A prompt that Azure's filter stopped is a 400, and one that
OpenRouter's moderation stopped a 403; both are refusals. Groq has a status for a full service
tier. DeepSeek, Mistral, OpenRouter and vLLM have a finish reason for an answer that their machines
could not finish.
"""

import json
import re
from collections.abc import Mapping

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from convergence_core.records import Json
from tasks.http.faults import access_refused, status_fault
from tasks.http.retries import rate_of
from tasks.json_values import first_of, mapping
from tasks.providers.answers import REFUSAL

_BAD_KEY = ("API_KEY_INVALID", "API key not valid", "API key expired", "invalid_api_key")
_LIMIT_REACHED = "billing_hard_limit_reached"
_SPENT = ("credit balance is too low", "reached your specified API usage limits")
"""Anthropic's messages in an ``invalid_request_error``."""
_FILTERED = frozenset(
    {"content_filter", "content_policy_violation", "ResponsibleAIPolicyViolation"}
)
_MODERATED = frozenset({"reasons", "flagged_input"})
"""Fields of ``metadata`` in OpenRouter's 403 if the key is good and the prompt is not."""
_UNFINISHED = frozenset({"abort", "error", "insufficient_system_resource"})
"""Finish reasons of an answer that the server aborted: vLLM; Mistral and OpenRouter; DeepSeek."""
_RETRY_DELAY = re.compile(r'"retryDelay":\s*"(\d+(?:\.\d+)?)s"')
"""Seconds to wait in the body of Gemini's 429, which lacks the header."""
_CAPACITY = 498
"""Groq's status for a full service tier."""


def provider_fault(
    status: int, body: str, headers: httpx.Headers, *, url: str, secret: str | None
) -> EvaluationFault:
    """Return the fault of an answer with an error status; see ``status_fault``."""
    codes = _codes(body) if status in (400, 403) else set()
    if status == 400 and any(mark in body for mark in _BAD_KEY):
        return access_refused(url, status, secret, details=body)
    if _LIMIT_REACHED in codes or (status == 400 and any(mark in body for mark in _SPENT)):
        return InfrastructureFault(
            f"HTTP 400 from {url}: the account's own limit is reached. Raise it with the provider.",
            error_type="http_400",
            details=body,
            retryable=False,
        )
    if codes & _FILTERED:
        return CandidateFault(
            "the provider's filter stopped the prompt", error_type=REFUSAL, details=body
        )
    if status == _CAPACITY:
        rate = rate_of(headers.raw)
        return InfrastructureFault(
            f"HTTP {status} from {url}: its service tier is full",
            error_type=f"http_{status}",
            details=body,
            retry_after_s=None if rate is None else rate.retry_after_s,
            rate=rate,
        )
    fault = status_fault(status, body, headers, url=url, secret=secret)
    if isinstance(fault, InfrastructureFault) and fault.retryable and fault.retry_after_s is None:
        delay = _RETRY_DELAY.search(body)
        fault.retry_after_s = None if delay is None else float(delay[1])
    return fault


def reported_fault(
    piece: Mapping[str, Json],
    headers: httpx.Headers,
    *,
    url: str,
    secret: str | None,
    has_begun: bool = False,
) -> EvaluationFault | None:
    """Return the fault that a 200 or a piece of a stream reports; ``None`` if there is none.

    ``has_begun`` means that part of the answer came before. That part may be billed, and so may a
    server error; a rejected request is free.
    """
    error = piece.get("error") or (piece if piece.get("type") == "error" else None)
    if not error:
        return None
    body = json.dumps(dict(piece), ensure_ascii=False)
    status = error.get("status_code", error.get("code")) if isinstance(error, dict) else None
    if re.fullmatch(r"[45]\d\d", str(status)):  # gateways also write the number as a string
        fault = provider_fault(int(str(status)), body, headers, url=url, secret=secret)
        if isinstance(fault, InfrastructureFault):
            fault.may_be_billed = has_begun or int(str(status)) >= 500
        return fault
    return InfrastructureFault(
        f"the answer of {url} reports an error",
        error_type="stream_error",
        details=body,
        may_be_billed=True,
    )


def unfinished_fault(
    raw: Mapping[str, Json], headers: httpx.Headers, *, url: str, secret: str | None
) -> EvaluationFault | None:
    """Return the fault that the first choice reports, or that aborted it; else ``None``."""
    choice = first_of(raw.get("choices"))
    reported = reported_fault(choice, headers, url=url, secret=secret, has_begun=True)
    reason = choice.get("finish_reason") or raw.get("stop_reason")
    if reported is None and reason in _UNFINISHED:
        return InfrastructureFault(
            f"the server of {url} aborted the answer: {reason}",
            error_type="unfinished_answer",
            may_be_billed=True,
        )
    return reported


def _codes(body: str) -> set[str]:
    """Return the codes of an error in OpenAI's form, including its inner error and metadata."""
    try:
        error = json.loads(body)["error"]
        inner = error.get("innererror") or {}
        metadata = mapping(error.get("metadata"))
        codes = {
            error.get("code"),
            error.get("type"),
            inner.get("code"),
            metadata.get("error_type"),
        }
        if not _MODERATED.isdisjoint(metadata):
            codes.add("content_filter")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return set()
    return {code for code in codes if isinstance(code, str)}
