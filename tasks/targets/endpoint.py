"""HTTP endpoints as targets: requests from templates, results from answers."""

import json
import re
from collections.abc import Mapping, Set as AbstractSet
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

import httpx

from convergence_core.budget.prices import PriceTable
from convergence_core.config import ApiConfig
from convergence_core.config.api import BODILESS
from convergence_core.config.secrecy import shown
from convergence_core.errors import Billed, CandidateFault, InfrastructureFault
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply, Usage, fields_of
from tasks.functions.call_forms import merge
from tasks.functions.function_results import read_json
from tasks.http.authentication import request_headers
from tasks.http.clients import ClientSettings, HttpClient
from tasks.http.faults import bad_body_fault, bare
from tasks.http.request_templates import Values
from tasks.json_values import (
    MOST_BILLED,
    Missing,
    NotJsonError,
    as_text,
    mapping,
    pick,
    says_failed,
    to_json,
)
from tasks.providers.faults import reported_fault
from tasks.secrets.redaction import Secrets, secret_name
from tasks.targets.endpoint_mock import EndpointMock
from tasks.targets.request_price import RequestPrice

_PAGE: Final = re.compile(
    r"[\s\ufeff]*<(?:!doctype\s+html|html)\b(?:.*?<title\b[^>]*>(.*?)</title>)?", re.I | re.S
)
"""Beginning of an HTML page, with its title."""
_FAILURE: Final = re.compile(
    r"\b(?:error|status|http)\W{0,3}[45]\d\d\b|\b[45]\d\d\b\W{0,3}(?:error|bad|unauth|forbid|not |request|too "
    r"many|internal|server|service|gateway|web server)|^\W*(?:error\b|bad gateway|service (?:is )?unavailable|"
    r"gateway time|internal server error|too many requests|access denied|forbidden|application error|"
    r"just a moment|attention required)",
    re.IGNORECASE,
)
"""Failure words in a proxy page's title, or at its beginning without a title."""
_JSON_TYPE: Final = re.compile(r"text/(.*json.*|(x-)?javascript)")
"""Text types that servers use for JSON."""
_TAG: Final = re.compile(r"text/html:<[a-zA-Z!/?]")
_HIDDEN: Final = re.compile(r"(?is)<(style|script|head)\b.*?</\1>|<[^>]*>")
_HEAD_CHARS: Final = 10_000
_SHOWN_CHARS: Final = 300


@dataclass(eq=False, repr=False)
class HttpTarget:
    """Target of ``api.endpoint``, or of the entry of ``api.models`` that ``model`` names.

    A call costs the answer's ``api.response.cost_field``, or else the price of one request under
    ``prices.http``; without both, it is unknown. With ``mock``, the mock answers and no endpoint
    is called. Metrics read the fields ``reads`` of its results; see ``read_json``.
    """

    provider = "http"

    api: ApiConfig
    _: KW_ONLY
    secrets: Secrets
    workers: int
    prices: PriceTable | None = None
    mock: EndpointMock | None = None
    reads: AbstractSet[str] | None = None

    def __post_init__(self) -> None:
        """Look up the price of a request, and create the client."""
        self._price = RequestPrice.of(self.prices, self.provider)
        settings = ClientSettings.of(self.api.request, self.workers)
        self._client = HttpClient(settings, secret_name(self.api))

    def request(self, params: Params, case: Case) -> dict[str, Json]:
        """Return method, URL, query, configured headers and body, without secrets.

        Raises:
            CandidateFault: the case lacks an input that a template needs.
        """
        request = self.api.request
        values = Values(params, case.input)
        query: dict[str, Json] = {name: values.text(text) for name, text in request.query.items()}
        body: Json = None
        if request.body is not None:
            body = values.fill(request.body)
        elif request.method in BODILESS:
            merged = {} if request.query else merge(case.input, params)
            query |= {name: as_text(value) for name, value in merged.items()}
        else:
            body = dict(merge(case.input, params))
        model = chosen_model(self.api, params)
        return {
            "method": request.method,
            "url": self.api.models[model].endpoint if model else str(self.api.endpoint),
            "query": query,
            "headers": dict(request.headers),
            "body": body,
        }

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the price of one request; the answer may report another price later.

        Raises:
            CandidateFault: as ``request``.
        """
        self.request(params, case)
        return WorstCase(usd=self._price.usd)

    async def call(self, params: Params, case: Case) -> Reply:
        """Send the request once and map its answer.

        Raises:
            CandidateFault: a 4xx, or an answer that reports failure or lacks its result.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or denied access.
        """
        request = self.request(params, case)
        if self.mock is not None:
            body = self.mock.request(params, case)
            request = {"method": "POST", "url": self.mock.url, "query": None, "body": body}
        response, latency_ms = await self._exchange(request)
        return self._reply(response, latency_ms)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    async def _exchange(self, request: Mapping[str, Json]) -> tuple[httpx.Response, float]:
        """Send a request once; return its answer and the milliseconds.

        Raises:
            ConfigurationError: an environment variable is not set.
            EvaluationFault: the exchange failed.
        """
        auth = {} if self.mock else request_headers(self.api, self.secrets)
        response, latency_ms = await self._client.request(
            str(request["method"]),
            str(request["url"]),
            params=request["query"] or None,
            json=request["body"],
            headers=auth,
        )
        if self.mock is not None:
            response = httpx.Response(200, json=self.mock.answer(response.json()))
        return response, latency_ms

    def _reply(self, response: httpx.Response, latency_ms: float) -> Reply:
        raw = _body_of(response, is_text_allowed=self.api.response.result_field is None)
        billed = self._billed(raw)
        try:
            value = self._value(raw, response, billed)
        except NotJsonError as error:
            raise CandidateFault(str(error), error_type=error.error_type, billed=billed) from error
        return Reply(
            value=value,
            latency_ms=latency_ms,
            **fields_of(billed, "cost_usd", "price_version", "usage"),
            provider=self.provider,
        )

    def _value(self, raw: Json, response: httpx.Response, billed: Billed) -> Json:
        """Return the result in an answer; numbers that metrics do not read may be NaN.

        Raises:
            EvaluationFault: the answer reports a fault, or has no result.
            NotJsonError: the result has no JSON form.
        """
        field, body = self.api.response.result_field, to_json(raw, lambda _: False)
        error = mapping(body).get("error")
        if says_failed(body):
            why = "the endpoint reported a failure" if error is None else as_text(error)
            raise CandidateFault(why, error_type="reported_failure", billed=billed)
        value = pick(raw, field or "result")
        is_message = isinstance(error, dict) and bool({"message", "code"} & error.keys())
        is_absent = value is None or isinstance(value, Missing)
        if is_absent and isinstance(body, dict) and (isinstance(error, str) or is_message):
            url, secret = bare(str(response.request.url)), secret_name(self.api)
            reported = reported_fault(body, response.headers, url=url, secret=secret)
            if reported is not None:
                reported.billed = None if billed.cost_usd is None else billed
                raise reported
        if isinstance(value, Missing) and field is not None:
            raise CandidateFault(
                f"the answer has no `{field}`",
                error_type="missing_result",
                details=response.text,
                billed=billed,
            )
        return read_json(raw if isinstance(value, Missing) else value, self.reads)

    def _billed(self, body: Json) -> Billed:
        """Return the cost that an answer reports, else the price of a request."""
        billed = Billed(usage=Usage(), cost_usd=_number(body, self.api.response.cost_field))
        return self._price.bill(billed) or billed


def chosen_model(api: ApiConfig, params: Params) -> str:
    """Return the entry of ``api.models`` that ``model`` names; empty if there are no entries.

    Raises:
        CandidateFault: ``api.models`` has no such entry.
    """
    model = str(params.get("model")) if api.models else ""
    if model and model not in api.models:
        raise CandidateFault(
            f"`api.models` has no entry {model!r}; the parameter `model` chooses among "
            f"{', '.join(api.models)}",
            error_type="unknown_model",
        )
    return model


def _body_of(response: httpx.Response, *, is_text_allowed: bool) -> Json:
    """Return the JSON of an answer, or its plain text if the target reads no field.

    Args:
        response: Response, read to its end.
        is_text_allowed: Whether plain text is an answer.

    Raises:
        InfrastructureFault: it is neither JSON nor an answer (cut off, a proxy's page).
    """
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        body = _json_of(response)
        # A text may happen to be a JSON number or word; it remains a string.
        is_json = isinstance(body, (dict, list)) or not _is_words(kind)
        return body if is_json else response.text
    except (ValueError, RecursionError) as error:
        text = response.text
        if is_text_allowed and _is_answer(text, kind, error):
            return text
        raise bad_body_fault(error, text, url=bare(str(response.request.url))) from error


def _is_words(kind: str) -> bool:
    """Return whether a type is text but not JSON; many servers call any answer HTML."""
    is_other = kind in {"text/html", "text/event-stream"} or _JSON_TYPE.fullmatch(kind)
    return kind.startswith("text/") and not is_other


def _is_answer(text: str, kind: str, error: Exception) -> bool:
    """Return whether a text is an answer, and neither truncated JSON nor a proxy's page.

    An HTML page is an answer if it has another type and its title, or else its beginning, reports
    no failure.
    """
    words = text.strip("\ufeff \t\r\n")
    if _JSON_TYPE.fullmatch(kind) and words.startswith(("{", "[", '"')):
        return False
    if not words or not (kind == "" or kind.startswith("text/")) or kind == "text/event-stream":
        return False
    if not _is_words(kind) and (_is_cut_off(words, error) or _TAG.match(f"{kind}:{words}")):
        return False
    page = _PAGE.match(text, 0, _HEAD_CHARS)
    if page is None:
        return True
    shown = page[1] or re.sub(_HIDDEN, " ", page.string[: page.endpos])
    return _FAILURE.search(" ".join(shown.split()), 0, _SHOWN_CHARS) is None


def _is_cut_off(words: str, error: Exception) -> bool:
    """Return whether a text begins as a JSON object or list and ends within it."""
    if not words.startswith(("{", "[")) or not isinstance(error, json.JSONDecodeError):
        return isinstance(error, RecursionError)
    rest = error.doc[error.pos :].strip()
    is_begun = any(word.startswith(rest) for word in ("true", "false", "null", "-"))
    return is_begun or error.msg.startswith("Unterminated")


def _json_of(response: httpx.Response) -> Any:
    """Return an answer's JSON, whatever its content type; its numbers may be NaN.

    Raises:
        RecursionError: the JSON is nested too deeply.
        ValueError: the body is not JSON.
    """
    try:
        return json.loads(response.content)
    except UnicodeDecodeError:
        try:
            text = response.content.decode(response.charset_encoding or "utf-8")
        except LookupError as error:
            raise ValueError(str(error)) from None
        return json.loads(text)


def _number(body: Json, path: str | None) -> float | None:
    value = None if path is None else pick(body, path)
    if isinstance(value, str):  # many servers write decimals as strings
        with suppress(ValueError):
            value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not value <= MOST_BILLED:  # this form also catches NaN
        raise InfrastructureFault(
            f"the answer has {shown(value)} in `{path}`, not a number up to {MOST_BILLED:g}. Check "
            "what the endpoint sends there.",
            error_type="bad_bill",
            retryable=False,
            may_be_billed=True,
        )
    return float(value) if value >= 0 else None
