"""HTTP clients, what can go wrong with a call, in words, and whose fault it is.

Rate limits, network and server errors are the infrastructure's and may heal; a refused key is the
infrastructure's and does not; any other 4xx is what the candidate's parameters caused.
"""

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from tasks.retries import parse_retry_after
from tasks.values import shorten

_RETRYABLE = frozenset({408, 409, 425, 429})
_DETAILS_CHARS = 2000


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
    details = shorten(body, _DETAILS_CHARS)
    kind = f"http_{status}"
    if status in (401, 403):
        fix = f"Check the value of {secret}." if secret else "Add `api.auth` to the configuration."
        return InfrastructureFault(
            f"HTTP {status} from {url}: access refused. {fix}",
            error_type=kind,
            details=details,
            retryable=False,
        )
    if status >= 500 or status in _RETRYABLE:
        return InfrastructureFault(
            f"HTTP {status} from {url}",
            error_type=kind,
            details=details,
            retry_after_s=retry_after_s(headers),
        )
    if status < 400:
        return InfrastructureFault(
            f"HTTP {status} from {url}: redirects to another host are not followed. "
            f"Write the final URL as `api.endpoint`: {headers.get('location', 'none given')}",
            error_type=kind,
            retryable=False,
        )
    return CandidateFault(f"HTTP {status} from {url}", error_type=kind, details=details)


def retry_after_s(headers: httpx.Headers) -> float | None:
    """Return the pause that a server asks for, ``None`` if it does not say."""
    milliseconds = parse_retry_after(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000.0
    return parse_retry_after(headers.get("retry-after"))


def transport_fault(error: BaseException, *, url: str, timeout_s: float) -> InfrastructureFault:
    """Return the fault that a failed exchange means: it never got an answer, or half of one."""
    if isinstance(error, httpx.ConnectTimeout):
        why, kind = f"no connection to {url} within {timeout_s:g} s", "connect_timeout"
    elif isinstance(error, (httpx.TimeoutException, TimeoutError)):
        why, kind = f"no complete answer from {url} within {timeout_s:g} s", "timeout"
    else:
        words = str(error) or type(error).__name__
        why, kind = f"no answer from {url}: {words}", "network"
    return InfrastructureFault(why, error_type=kind)


def bad_body_fault(error: Exception, body: str, *, url: str) -> InfrastructureFault:
    """Return the fault of an answer that is no JSON, e.g. because it was cut off."""
    return InfrastructureFault(
        f"the answer of {url} is not JSON: {error}",
        error_type="bad_body",
        details=shorten(body, _DETAILS_CHARS),
    )


def make_client(timeout_s: float, n_connections: int) -> httpx.AsyncClient:
    """Return a client with a connection for each worker; waiting for one is no time-out."""
    return httpx.AsyncClient(
        timeout=httpx.Timeout(timeout_s, pool=None),
        limits=httpx.Limits(
            max_connections=n_connections, max_keepalive_connections=n_connections
        ),
    )
