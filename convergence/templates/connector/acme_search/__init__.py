"""A search service as a target, and the correctness of its first hit as a metric.

Two entry points in ``pyproject.toml`` lead to ``make_target`` and ``make_first``.
"""

import json
import time
from collections.abc import Callable

import httpx

from convergence.plugins import (
    CandidateFault,
    Case,
    ConfigurationError,
    InfrastructureFault,
    Json,
    Params,
    PluginContext,
    Reply,
    WorstCase,
)

MOST_USD = 0.001
"""Maximum price of a search, in US dollars."""


class AcmeSearch:
    """Target that calls the service.

    Parameters: ``stem`` (compared letters of a word) and ``least``.
    """

    provider = "acme-search"

    def __init__(self, context: PluginContext) -> None:
        self._url = str(context.options.get("url", "http://127.0.0.1:8809")).rstrip("/")
        self._secret = context.secret
        self._client = httpx.AsyncClient(timeout=context.timeout_s)

    def request(self, params: Params, case: Case) -> Json:
        """Return the request: everything that shapes the answer, and no secret."""
        query = case.input.get("query") if isinstance(case.input, dict) else None
        if not isinstance(query, str):
            raise CandidateFault("the case has no text `query`", error_type="bad_case")
        return {"url": f"{self._url}/search", "body": {"query": query[:1000], **params}}

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - the protocol's
        """Return the maximum cost of a call, which budgets reserve."""
        return WorstCase(usd=MOST_USD)

    async def call(self, params: Params, case: Case) -> Reply:
        """Call the service once.

        A failure names its cause: the candidate or the infrastructure.
        """
        request = self.request(params, case)
        assert isinstance(request, dict)  # noqa: S101 - made above
        key = self._secret()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        begun = time.perf_counter()
        try:
            answer = await self._client.post(
                str(request["url"]), json=request["body"], headers=headers
            )
        except httpx.HTTPError as error:  # retried, then missing
            raise InfrastructureFault(
                f"no answer from {self._url}: {error}", error_type="network", may_be_billed=True
            ) from None
        took_ms = (time.perf_counter() - begun) * 1000
        status = f"http_{answer.status_code}"
        if answer.status_code == 429 or answer.status_code >= 500:
            raise InfrastructureFault("the service is busy", error_type=status)
        if answer.status_code in (401, 403):
            raise InfrastructureFault(
                "the service refused the key", error_type=status, retryable=False
            )
        if answer.status_code >= 400:
            raise CandidateFault("the service refused the search", error_type=status)
        hits, usd = _read(answer.content)
        return Reply(value=hits, latency_ms=took_ms, cost_usd=usd)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()


def _read(content: bytes) -> tuple[Json, float | None]:
    """Return the hits and their price; an invalid answer is a fault with a reason."""
    try:
        body = json.loads(content)
        hits = [str(hit) for hit in body["hits"]]
        usd = body.get("cost_usd")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CandidateFault("the answer has no list `hits`", error_type="bad_answer") from None
    is_price = isinstance(usd, float) and 0 <= usd <= MOST_USD
    return [*hits], usd if is_price else None


def make_target(context: PluginContext) -> AcmeSearch:
    """Return the target of ``api.plugin: acme-search``."""
    check_options(context, ("url",))
    return AcmeSearch(context)


def make_first(context: PluginContext) -> Callable[[object, object], float]:
    """Return the metric of ``plugin: acme-first``: 1 if the first hit is the expected one."""
    check_options(context, ())

    def first(result: object, expected: object) -> float:
        return float(isinstance(result, list) and result[:1] == [expected])

    return first


def check_options(context: PluginContext, known: tuple[str, ...]) -> None:
    """Raise for an unknown option."""
    for name in context.options:
        if name not in known:
            fix = f"Known are {', '.join(known)}." if known else "Remove it."
            key = f"{context.key}.plugin_options.{name}"
            raise ConfigurationError.of(key, "is not a known key", fix)
