"""Faults of HTTP exchanges: cause, whose fault, and whether it may be billed.

Rate limits, network and server errors are the infrastructure's and may heal; a refused key, spent
credit, a proxy that refuses and an address that leads elsewhere are the infrastructure's and do not;
any other 4xx is what the candidate's parameters caused. A request that was sent and whose end was
not seen may have cost money.
"""

from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from convergence_core.errors import CandidateFault, EvaluationFault, InfrastructureFault
from tasks.http.retries import rate_of

_RETRYABLE = frozenset({408, 409, 421, 424, 425, 429, 444, 460, 499})
"""Also of a connection to the wrong server (421), of what the server itself depends on (424), and of
proxies whose caller or server went away (nginx's 444 and 499, AWS's 460)."""
_UNREAD = frozenset({407, 426, 464, 495, 496, 497})
"""Of a proxy, of HTTP's version or of TLS (nginx's 495 to 497): no server read the request."""
_MAYBE_BILLED = frozenset({502, 504, 520, 522, 524})
"""A gateway gave up on the server behind it, which may have done the work."""
_SPENT_CODES = ("insufficient_quota", "billing_not_active", "billing_hard_limit_reached")


def bare(url: str) -> str:
    """Return a URL without user name, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def access_refused(url: str, status: int, secret: str | None, **more: Any) -> InfrastructureFault:
    """Return the fault of a request that was refused for its key.

    Args:
        url: what was called.
        status: of the answer.
        secret: environment variable that holds the key, if one was sent.
        more: of the fault.
    """
    fix = f"Check the value of {secret}." if secret else "Add `api.auth` to the configuration."
    text = f"HTTP {status} from {url}: access refused. {fix}"
    return InfrastructureFault(text, error_type=f"http_{status}", retryable=False, **more)


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
    """Return the fault of an answer that is no JSON, e.g. because it was cut off."""
    return InfrastructureFault(
        f"the answer of {url} is not JSON: {error}",
        error_type="bad_body",
        details=body,
        may_be_billed=True,
    )


def header_fault(error: BaseException, variable: str | None) -> InfrastructureFault | None:
    """Return the fault of a header that HTTP cannot carry; ``None`` if the error is another one.

    The client's own message would repeat the header.

    Args:
        error: what the client raised; of the ``UnicodeError`` only those of headers.
        variable: environment variable of the key, if one was sent.
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
