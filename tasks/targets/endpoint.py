"""Any HTTP endpoint as a target: a request from templates, a result from fields of its answer."""

import asyncio
import json
import math
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from convergence_core.config import ApiConfig
from convergence_core.errors import CandidateFault
from convergence_core.records import Case, Json, Params, Reply
from tasks.authentication import request_headers, secret_name
from tasks.call_forms import merge
from tasks.http_calls import bad_body_fault, make_client, status_fault, transport_fault
from tasks.redaction import Secrets
from tasks.request_templates import Values
from tasks.stopwatch import Stopwatch
from tasks.values import Missing, NotJsonError, as_text, pick, shorten, to_json

MAX_REDIRECTS = 5
USER_AGENT = "convergence-optimizer"


class HttpTarget:
    """Calls ``api.endpoint``, or the one of ``api.models`` that the parameter ``model`` names."""

    provider = "http"

    def __init__(
        self, api: ApiConfig, *, templates: Mapping[str, str], secrets: Secrets, workers: int
    ) -> None:
        self._api = api
        self._templates = templates
        self._secrets = secrets
        self._workers = workers
        self._timeout_s = api.request.timeout_seconds
        self._client: httpx.AsyncClient | None = None

    def request(self, params: Params, case: Case) -> Json:
        """Return method, URL, query, headers as configured, and body; no secret is in it.

        Raises:
            CandidateFault: the case lacks an input that a template needs.
        """
        request = self._api.request
        values = Values(params, case.input, self._templates)
        query: dict[str, Json] = {name: values.text(text) for name, text in request.query.items()}
        body: Json = None
        if request.body is not None:
            body = values.fill(request.body)
        elif request.method in ("GET", "DELETE"):
            merged = {} if request.query else merge(case.input, params)
            query |= {name: as_text(value) for name, value in merged.items()}
        else:
            body = dict(merge(case.input, params))
        headers: dict[str, Json] = dict(request.headers)
        return {
            "method": request.method,
            "url": self._url(params),
            "query": query,
            "headers": headers,
            "body": body,
        }

    async def call(self, params: Params, case: Case) -> Reply:
        """Send the request once and map its answer.

        Raises:
            CandidateFault: a 4xx, or an answer that reports failure or lacks its result.
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: network, time-out, rate limit, server, or refused access.
        """
        request = self.request(params, case)
        assert isinstance(request, dict)  # noqa: S101 - made above
        response, latency_ms = await self._exchange(request)
        return self._reply(response, latency_ms)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _url(self, params: Params) -> str:
        if not self._api.models:
            return str(self._api.endpoint)
        model = str(params.get("model"))
        if model not in self._api.models:
            raise CandidateFault(
                f"`api.models` has no entry {model!r}; the parameter `model` chooses among "
                f"{', '.join(self._api.models)}",
                error_type="unknown_model",
            )
        return self._api.models[model].endpoint

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = make_client(self._timeout_s, self._workers)
        return self._client

    async def _exchange(self, request: Mapping[str, Json]) -> tuple[httpx.Response, float]:
        client = self._open_client()
        url, body = str(request["url"]), request["body"]
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json, */*;q=0.1"}
        headers |= request_headers(self._api, self._secrets)
        try:
            async with asyncio.timeout(None) as deadline:
                stopwatch = Stopwatch(deadline, self._timeout_s)
                response = await client.request(
                    str(request["method"]),
                    url,
                    params=request["query"] or None,  # type: ignore[arg-type]  # texts by name
                    json=body,
                    headers=headers,
                    extensions={"trace": stopwatch},
                )
                for _ in range(MAX_REDIRECTS):
                    if not _leads_to_same_host(response):
                        break
                    assert response.next_request is not None  # noqa: S101 - it leads somewhere
                    response.next_request.extensions["trace"] = stopwatch
                    response = await client.send(response.next_request)
                latency_ms = stopwatch.read_ms()
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise transport_fault(error, url=_bare(url), timeout_s=self._timeout_s) from error
        if response.status_code >= 300:
            raise status_fault(
                response.status_code,
                response.text,
                response.headers,
                url=_bare(url),
                secret=secret_name(self._api),
            )
        return response, latency_ms

    def _reply(self, response: httpx.Response, latency_ms: float) -> Reply:
        fields = self._api.response
        body = _body_of(response)
        if _found(body, fields.success_field) is False:
            reason = _found(body, fields.error_field)
            why = "the endpoint reported a failure" if reason is None else as_text(reason)
            raise CandidateFault(shorten(why, 1000), error_type="reported_failure")
        value = pick(body, fields.result_field)
        if isinstance(value, Missing):
            if fields.result_required:
                raise CandidateFault(
                    f"the answer has no `{fields.result_field}`",
                    error_type="missing_result",
                    details=shorten(response.text, 2000),
                )
            value = body
        return Reply(
            value=value,
            latency_ms=latency_ms,
            cost_usd=_number(body, fields.cost_field),
            tokens_in=_count(body, fields.tokens_in_field),
            tokens_out=_count(body, fields.tokens_out_field),
            provider=self.provider,
        )


def _leads_to_same_host(response: httpx.Response) -> bool:
    following = response.next_request
    if following is None:
        return False
    here = response.request.url
    return (following.url.scheme, following.url.host, following.url.port) == (
        here.scheme,
        here.host,
        here.port,
    )


def _bare(url: str) -> str:
    """Return a URL without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _body_of(response: httpx.Response) -> Json:
    if response.headers.get("content-type", "").startswith("text/plain"):
        return to_json(response.text)
    try:
        return to_json(json.loads(response.content))
    except NotJsonError as error:  # NaN, which is no JSON
        raise CandidateFault(f"in the answer, {error}", error_type=error.error_type) from error
    except (ValueError, RecursionError) as error:
        url = _bare(str(response.request.url))
        raise bad_body_fault(error, response.text, url=url) from error


def _found(body: Json, path: str | None) -> Json:
    value = None if path is None else pick(body, path)
    return None if isinstance(value, Missing) else value


def _number(body: Json, path: str | None) -> float | None:
    value = _found(body, path)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _count(body: Json, path: str | None) -> int | None:
    number = _number(body, path)
    return None if number is None else int(number)
