"""Faults of HTTP exchanges: their cause, and whether they may be billed.

Rate limits, network and server errors are the infrastructure's and retryable. A rejected key,
spent credit, a rejecting proxy and a redirect are the infrastructure's and not retryable. The
candidate's parameters caused any other 4xx. A request that was sent may have cost money if its end
is unknown.
"""

from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from tasks.http.retries import rate_of

_RETRYABLE = frozenset({408, 409, 421, 424, 425, 429, 444, 460, 499})
"""Retryable statuses. 421 means a connection to the wrong server, and 424 a failed dependency of
the server. Proxies send nginx's 444 and 499 and AWS's 460 if the caller or server disconnected.
"""
_UNREAD = frozenset({407, 426, 464, 495, 496, 497})
"""Statuses of a proxy, HTTP version or TLS (nginx's 495 to 497): no server read the request."""
_MAYBE_BILLED = frozenset({502, 504, 520, 522, 524})
"""Statuses of a gateway that gave up on a server, which may have done the work."""
_SPENT_CODES = ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached")


def bare(url: str) -> str:
    """Return a URL without user name, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def access_refused(url: str, status: int, secret: str | None, **more: Any) -> InfrastructureFault:
    """Return the fault of a request whose key was rejected.

    Args:
        url: Called URL.
        status: Status of the answer.
        secret: Environment variable of the key, if one was sent.
        more: Further fields of the fault.
    """
    fix = f"Check the value of {secret}." if secret else "Add `api.auth` to the configuration."
    text = f"HTTP {status} from {url}: access refused. {fix}"
    return InfrastructureFault(text, error_type=f"http_{status}", retryable=False, **more)


def status_fault(
    status: int, body: str, headers: httpx.Headers, *, url: str, secret: str | None
) -> EvaluationFault:
    """Return the fault of an HTTP status.

    Args:
        status: Status of 300 or more.
        body: Text of the answer, stored as details.
        headers: Headers of the answer.
        url: Called URL without its query.
        secret: Environment variable of the key, if one was sent.
    """
    text, kind = f"HTTP {status} from {url}", f"http_{status}"
    rate = rate_of(headers.raw)
    if status in (401, 403):
        return access_refused(url, status, secret, details=body, rate=rate)
    retryable, may_be_billed = True, status in _MAYBE_BILLED
    if status == 402 or (status == 429 and any(code in body for code in _SPENT_CODES)):
        retryable, whose = False, f" of {secret}" if secret else ""
        text += (
            f": the account{whose} is out of credit. Add some, or raise its limit, with the "
            "provider."
        )
    elif status in _UNREAD:
        retryable = False
        text += (
            ": refused before the request was read. Check the proxy, and the scheme and port of the "
            "address."
        )
    elif status < 400:
        location = headers.get("location")
        retryable, body = False, ""
        text += (
            ": redirects are not followed, because no limit would count them. "
            "Write the final URL as `api.endpoint`: "
            f"{urljoin(url, location) if location else 'none given'}"
        )
    elif status < 500 and status not in _RETRYABLE:
        return CandidateFault(text, error_type=kind, details=body)
    return InfrastructureFault(
        text,
        error_type=kind,
        details=body,
        retryable=retryable,
        retry_after_s=rate.retry_after_s if rate is not None and retryable else None,
        may_be_billed=may_be_billed,
        rate=rate,
    )


def bad_body_fault(error: Exception, body: str, *, url: str) -> InfrastructureFault:
    """Return the fault of an answer that is not JSON, e.g. because it was cut off."""
    return InfrastructureFault(
        f"the answer of {url} is not JSON: {error}",
        error_type="bad_body",
        details=body,
        may_be_billed=True,
    )


def header_fault(error: BaseException, variable: str | None) -> InfrastructureFault | None:
    """Return the fault of a header that HTTP cannot carry; ``None`` for other errors.

    The client's own message would repeat the header.

    Args:
        error: Exception of the client; every ``UnicodeError`` must come from a header.
        variable: Environment variable of the key, if one was sent.
    """
    is_illegal = isinstance(error, httpx.LocalProtocolError) and "header" in str(error)
    if not is_illegal and not isinstance(error, UnicodeError):
        return None
    where = variable or "`api.request.headers`"
    return InfrastructureFault(
        f"nothing was sent: a header holds characters that HTTP cannot carry. Check {where}.",
        error_type="bad_header",
        retryable=False,
    )
