"""HTTP clients, what can go wrong with a call, in words, whose fault it is, and who pays.

Rate limits, network and server errors are the infrastructure's and may heal; a refused key,
spent credit and an address that leads elsewhere are the infrastructure's and do not; any other 4xx is what the candidate's parameters
caused. A request that was sent and whose end nobody saw may have cost money.
"""

import ssl
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from tasks.http.bodies import CODINGS, MAX_RESPONSE_BYTES, limiting
from tasks.http.connections import connection_mounts
from tasks.http.retries import rate_of

if TYPE_CHECKING:
    from tasks.http.stopwatch import Stopwatch

_RETRYABLE = frozenset({408, 409, 425, 429})
_MAYBE_BILLED = frozenset({502, 504, 520, 522, 524})
"""A gateway gave up on the server behind it, which may have done the work."""
_SPENT_CODES = ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached")


def status_fault(
    status: int, body: str, headers: httpx.Headers, *, url: str, secret: str | None
) -> EvaluationFault:
    """Return the fault that an HTTP status means.

    Args:
        status: 300 or more.
        body: the answer's text, kept as details.
        headers: of the answer.
        url: what was called, without its query.
        secret: environment variable that holds the key, if one was sent.
    """
    kind = f"http_{status}"
    rate = rate_of(headers.raw)
    if status in (401, 403):
        fix = f"Check the value of {secret}." if secret else "Add `api.auth` to the configuration."
        return InfrastructureFault(
            f"HTTP {status} from {url}: access refused. {fix}",
            error_type=kind,
            details=body,
            retryable=False,
            rate=rate,
        )
    if status == 402 or (status == 429 and any(code in body for code in _SPENT_CODES)):
        whose = f" of {secret}" if secret else ""
        return InfrastructureFault(
            f"HTTP {status} from {url}: the account{whose} is out of credit. "
            "Add some, or raise its limit, with the provider.",
            error_type=kind,
            details=body,
            retryable=False,
            rate=rate,
        )
    if status >= 500 or status in _RETRYABLE:
        return InfrastructureFault(
            f"HTTP {status} from {url}",
            error_type=kind,
            details=body,
            retry_after_s=None if rate is None else rate.retry_after_s,
            may_be_billed=status in _MAYBE_BILLED,
            rate=rate,
        )
    if status < 400:
        return InfrastructureFault(
            f"HTTP {status} from {url}: redirects are not followed, since each would be a "
            "request that no limit counts. Write the final URL as `api.endpoint`: "
            f"{_moved_to(url, headers.get('location'))}",
            error_type=kind,
            retryable=False,
            rate=rate,
        )
    return CandidateFault(f"HTTP {status} from {url}", error_type=kind, details=body)


def _moved_to(url: str, location: str | None) -> str:
    """Return the address that a redirect names, in words where it names none."""
    return urljoin(url, location) if location else "none given"


def transport_fault(
    error: BaseException,
    *,
    url: str,
    timeout_s: float,
    connect_s: float | None = None,
    first_byte_s: float | None = None,
    stopwatch: "Stopwatch | None" = None,
) -> InfrastructureFault:
    """Return the fault that a failed exchange means: it never got an answer, or half of one.

    Args:
        error: what httpx, the loop or a checkpoint raised.
        url: what was called, without its query.
        timeout_s: limit from sending to the last byte.
        connect_s: limit for a connection; ``None``: ``timeout_s``.
        first_byte_s: limit from sending to the head of the answer; ``None``: ``timeout_s``.
        stopwatch: of the exchange; tells how far it came.
    """
    if isinstance(error, InfrastructureFault):
        return error  # of a checkpoint
    if isinstance(error, httpx.ConnectTimeout):
        limit_s = timeout_s if connect_s is None else connect_s
        why, kind = f"no connection to {url} within {limit_s:g} s", "connect_timeout"
    elif isinstance(error, (httpx.TimeoutException, TimeoutError)):
        why, kind = f"no complete answer from {url} within {timeout_s:g} s", "timeout"
        if stopwatch is not None and stopwatch.missed_head and first_byte_s is not None:
            why, kind = f"no answer from {url} within {first_byte_s:g} s", "first_byte_timeout"
    else:
        words = str(error) or type(error).__name__
        why, kind = f"no answer from {url}: {words}", "network"
    if stopwatch is not None:
        is_sent = stopwatch.is_sent
    else:
        is_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
    return InfrastructureFault(why, error_type=kind, may_be_billed=is_sent)


def bad_body_fault(error: Exception, body: str, *, url: str) -> InfrastructureFault:
    """Return the fault of an answer that is no JSON, e.g. because it was cut off."""
    return InfrastructureFault(
        f"the answer of {url} is not JSON: {error}",
        error_type="bad_body",
        details=body,
        may_be_billed=True,
    )


@cache
def _certificates() -> ssl.SSLContext:
    """Return the certificates to trust: reading them takes longer than all else of a client."""
    return httpx.create_ssl_context()


def make_client(
    timeout_s: float,
    n_connections: int,
    *,
    connect_s: float | None = None,
    max_response_bytes: int = MAX_RESPONSE_BYTES,
) -> httpx.AsyncClient:
    """Return a client with a connection for each worker; waiting for one is no time-out.

    Args:
        timeout_s: longest silence on a connection; a ``Stopwatch`` limits the exchange.
        n_connections: most connections at once.
        connect_s: longest wait for a connection; ``None``: ``timeout_s``.
        max_response_bytes: most bytes of an answer, decoded; see ``tasks.http.bodies``.
    """
    return httpx.AsyncClient(
        headers={"Accept-Encoding": ", ".join(CODINGS)},
        event_hooks={"response": [limiting(max_response_bytes)]},
        verify=_certificates(),
        timeout=httpx.Timeout(
            timeout_s, connect=timeout_s if connect_s is None else connect_s, pool=None
        ),
        limits=httpx.Limits(
            max_connections=n_connections, max_keepalive_connections=n_connections
        ),
        mounts=connection_mounts(n_connections, verify=_certificates()),
    )
