"""Any HTTP endpoint as a target: a request from templates, a result from fields of its answer."""

import asyncio
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx

from convergence_core.config import ApiConfig
from convergence_core.config.secrecy import shown
from convergence_core.errors import (
    Billed,
    CandidateFault,
    ConfigurationError,
    InfrastructureFault,
    Problem,
)
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply, Usage
from tasks.functions.call_forms import merge
from tasks.http.authentication import header_fault, request_headers, secret_name
from tasks.http.clients import bad_body_fault, make_client, status_fault, transport_fault
from tasks.http.proxy_texts import is_of_proxy
from tasks.http.request_templates import Values
from tasks.http.stopwatch import Stopwatch
from tasks.json_values import MOST_BILLED, Missing, NotJsonError, as_text, pick, to_json
from tasks.secrets.redaction import Secrets

if TYPE_CHECKING:
    from convergence_core.budget.prices import PriceTable

USER_AGENT = "convergence-optimizer"


class HttpTarget:
    """Calls ``api.endpoint``, or the one of ``api.models`` that the parameter ``model`` names.

    A call costs what its answer says in ``api.response.cost_field``, else the price of one request
    under ``prices.http``, else nobody knows.

    Raises:
        ConfigurationError: a URL holds a user name or a password.
    """

    provider = "http"

    def __init__(
        self,
        api: ApiConfig,
        *,
        templates: Mapping[str, str],
        secrets: Secrets,
        workers: int,
        prices: "PriceTable | None" = None,
    ) -> None:
        _refuse_credentials(api)
        price = None if prices is None else prices.find(self.provider, None)
        self._request_usd = None if price is None else price.request_usd
        self._price_version = None if prices is None else prices.version_of(self.provider, None)
        self._api = api
        self._templates = templates
        self._secrets = secrets
        self._workers = workers
        self._timeout_s = api.request.timeout_seconds
        self._connect_s = api.request.connect_seconds
        self._first_byte_s = api.request.first_byte_seconds
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

    def worst_case(self, params: Params, case: Case) -> WorstCase:
        """Return the price of one request; an answer that names another is believed afterwards.

        Raises:
            CandidateFault: as ``request``.
        """
        self.request(params, case)
        return WorstCase(usd=self._request_usd)

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
            self._client = make_client(
                self._timeout_s,
                self._workers,
                connect_s=self._connect_s,
                max_response_bytes=self._api.request.max_response_bytes,
            )
        return self._client

    def _headers(self) -> httpx.Headers:
        """Return what is sent beside the body.

        Raises:
            ConfigurationError: an environment variable is not set.
            InfrastructureFault: a value holds what HTTP cannot carry.
        """
        own = {"User-Agent": USER_AGENT, "Accept": "application/json, */*;q=0.1"}
        try:
            return httpx.Headers(own | request_headers(self._api, self._secrets))
        except UnicodeError as error:
            fault = header_fault(error, secret_name(self._api))
        assert fault is not None  # noqa: S101 - of this kind of error it always is one
        raise fault

    async def _exchange(self, request: Mapping[str, Json]) -> tuple[httpx.Response, float]:
        client = self._open_client()
        url, body = str(request["url"]), request["body"]
        headers = self._headers()
        deadline = asyncio.timeout(None)
        stopwatch = Stopwatch(deadline, self._timeout_s, first_byte_s=self._first_byte_s)
        try:
            async with deadline:
                response = await client.request(
                    str(request["method"]),
                    url,
                    params=request["query"] or None,  # type: ignore[arg-type]  # texts by name
                    json=body,
                    headers=headers,
                    extensions={"trace": stopwatch},
                )
                latency_ms = stopwatch.read_ms()
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            raise header_fault(error, secret_name(self._api)) or transport_fault(
                error,
                url=_bare(url),
                timeout_s=self._timeout_s,
                connect_s=self._connect_s,
                first_byte_s=self._first_byte_s,
                stopwatch=stopwatch,
            ) from None  # it holds the request, and with it the headers
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
        try:
            body = _body_of(response, is_text_allowed=not fields.result_required)
        except CandidateFault as fault:
            fault.billed = self._billed(None)
            raise
        billed = self._billed(body)
        if _found(body, fields.success_field) is False:
            reason = _found(body, fields.error_field)
            why = "the endpoint reported a failure" if reason is None else as_text(reason)
            raise CandidateFault(why, error_type="reported_failure", billed=billed)
        value = pick(body, fields.result_field)
        if isinstance(value, Missing):
            if fields.result_required:
                raise CandidateFault(
                    f"the answer has no `{fields.result_field}`",
                    error_type="missing_result",
                    details=response.text,
                    billed=billed,
                )
            value = body
        return Reply(
            value=value,
            latency_ms=latency_ms,
            cost_usd=billed.cost_usd,
            price_version=billed.price_version,
            usage=billed.usage,
            provider=self.provider,
        )

    def _billed(self, body: Json) -> Billed:
        """Return what an answer says it cost, else the price of a request."""
        fields = self._api.response
        usage = Usage(
            prompt_tokens=_count(body, fields.tokens_in_field),
            completion_tokens=_count(body, fields.tokens_out_field),
        )
        told_usd = _number(body, fields.cost_field)
        if told_usd is not None or self._request_usd is None:
            return Billed(usage=usage, cost_usd=told_usd)
        return Billed(usage=usage, cost_usd=self._request_usd, price_version=self._price_version)


def _refuse_credentials(api: ApiConfig) -> None:
    """Check that no URL holds what has to stand in the environment.

    Raises:
        ConfigurationError: one does.
    """
    key_to_url = {f"api.models.{name}.endpoint": m.endpoint for name, m in api.models.items()}
    if api.endpoint is not None:
        key_to_url["api.endpoint"] = api.endpoint
    problems = [
        Problem(
            key=key,
            rule="must not hold a user name or a password",
            value="",
            fix="Remove what stands before the `@`, and write `auth: {type: basic, username: …, "
            "password_env: …}`.",
        )
        for key, url in key_to_url.items()
        if "@" in urlsplit(url).netloc
    ]
    if problems:
        raise ConfigurationError(problems)


def _bare(url: str) -> str:
    """Return a URL without what may be secret in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _body_of(response: httpx.Response, *, is_text_allowed: bool) -> Json:
    """Return what an answer says; a plain text is one where no field of JSON is asked for.

    Raises:
        CandidateFault: a number in it is not finite.
        InfrastructureFault: it is neither, e.g. cut off, or the text of a proxy.
    """
    is_plain = response.headers.get("content-type", "").startswith("text/plain")
    try:
        body = _json_of(response)
        # A plain text may happen to be a number or a word of JSON, and stays a text.
        return to_json(body if isinstance(body, (dict, list)) or not is_plain else response.text)
    except NotJsonError as error:  # NaN, which is no JSON
        raise CandidateFault(f"in the answer, {error}", error_type=error.error_type) from error
    except (ValueError, RecursionError) as error:
        text = response.text
        if is_plain and is_text_allowed and text.strip() and not is_of_proxy(text):
            return to_json(text)
        url = _bare(str(response.request.url))
        raise bad_body_fault(error, text, url=url) from error


def _json_of(response: httpx.Response) -> object:
    """Return an answer's JSON, whatever type its head names.

    Raises:
        RecursionError: it is nested too deeply.
        ValueError: it is no JSON.
    """
    try:
        return json.loads(response.content)
    except UnicodeDecodeError:
        try:
            text = response.content.decode(response.charset_encoding or "utf-8")
        except LookupError as error:
            raise ValueError(str(error)) from None
        return json.loads(text)


def _found(body: Json, path: str | None) -> Json:
    value = None if path is None else pick(body, path)
    return None if isinstance(value, Missing) else value


def _number(body: Json, path: str | None) -> float | None:
    value = _found(body, path)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if value > MOST_BILLED:
        raise InfrastructureFault(
            f"the answer says in `{path}` that it cost {shown(value)}, more than "
            f"{MOST_BILLED:g}. Check what the endpoint sends there.",
            error_type="bad_bill",
            retryable=False,
            may_be_billed=True,
        )
    return float(value) if value >= 0 else None  # not NaN either


def _count(body: Json, path: str | None) -> int | None:
    number = _number(body, path)
    return None if number is None else int(number)
