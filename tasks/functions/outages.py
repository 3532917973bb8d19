"""Outages behind exceptions of user functions: a network or server failed.

An exception's HTTP status decides if it has one, as for an HTTP target. Otherwise its class
decides, then the exceptions that it wraps: its ``__cause__`` and the members of a group, but not
the handled ``__context__``.
"""

import asyncio
import errno
import http.client
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final
from urllib.error import URLError

import httpx

from convergence_core.errors import InfrastructureFault
from tasks.http.faults import status_fault

_BUILT_IN: Final = (
    *(ConnectionError, TimeoutError, socket.gaierror, socket.herror, ssl.SSLError),
    *(http.client.IncompleteRead, http.client.BadStatusLine, asyncio.IncompleteReadError),
)
_UNSENT: Final = (ConnectionRefusedError, socket.gaierror, socket.herror)
_ERRNOS: Final = frozenset(
    {
        *(errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.ENOBUFS, errno.ENOTCONN),
        *(errno.EADDRNOTAVAIL, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT),
    }
)
_NETWORK: Final = {
    "*": "APIConnectionError ConnectionError InternalServerError RateLimitError TransportError",
    "aiohttp": "ClientConnectionError ClientPayloadError",
    "botocore": "HTTPClientError IncompleteReadError",
    "google": "RetryError",
    "httpcore": "NetworkError ProtocolError ProxyError TimeoutException",
    "httplib2": "ServerNotFoundError",
    "prawcore": "RequestException",
    "pymongo": "ConnectionFailure",
    "redis": "ClusterDownError TimeoutError TryAgainError",
    "requests": "ChunkedEncodingError RetryError Timeout",
    "urllib3": "MaxRetryError NewConnectionError ProtocolError ProxyError SSLError TimeoutError",
    "websockets": "ConnectionClosed",
    # In a stream they have no status, or the 200 of its start.
    **dict.fromkeys(("anthropic", "cerebras", "groq", "openai", "together"), "APIError"),
    **dict.fromkeys(("psycopg", "psycopg2"), "OperationalError"),
}
"""Names of classes or base classes, by the root of their module; ``*`` means any."""
_CLASSES: Final = {
    **{(root, name): True for root, names in _NETWORK.items() for name in names.split()},
    (
        "*",
        "UnsupportedProtocol",
    ): False,  # of httpx: a bad address, though it is a `TransportError`
}
_SQL_STATES: Final = ("08", "40", "53", "57P")
"""Connection, transaction conflict, no resources, shutdown (PostgreSQL, appendix A)."""
_BAD_ADDRESS: Final = ("unknown url type", "no host given", "file ")
"""Beginnings of the reasons of ``URLError`` that no network caused."""
_EXCHANGE: Final = frozenset({"headers", "response", "url"})
"""Attributes of exceptions that indicate an HTTP exchange."""
_AWS: Final = {
    r"throttl|limitexceeded|throughputexceeded|slowdown|toomanyrequests": 429,
    r"serviceunavailable|modelnotready": 503,
    r"internal(server|service)?(error|exception|failure)|modelstreamerror": 500,
    r"(model|request)timeout": 408,
}
"""Part of an AWS error code → equivalent status, since some come with 400, and all within a
stream.
"""
_GRPC: Final = {
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
    "RESOURCE_EXHAUSTED": 429,
    "ABORTED": 409,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "DATA_LOSS": 500,
    "CANCELLED": 499,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
}
"""gRPC status → equivalent HTTP status; the others are the candidate's."""
_MOST_WRAPPED: Final = 16


def outage_of(error: BaseException, *, n_wraps: int = _MOST_WRAPPED) -> InfrastructureFault | None:
    """Return the fault of the network or server behind an exception; ``None`` if there is none.

    Args:
        error: Exception of a user's function.
        n_wraps: Maximum depth of wrapped exceptions to inspect.
    """
    if isinstance(error, BaseExceptionGroup) and n_wraps:
        outages = [outage_of(member, n_wraps=n_wraps - 1) for member in error.exceptions]
        return None if None in outages else outages[0]
    if not isinstance(error, Exception):
        return None
    for status in _statuses(error):
        fault = status_fault(
            status, _text(error), _headers(error), url="the function", secret=None
        )
        return fault if isinstance(fault, InfrastructureFault) else None
    is_network = _is_network(error)
    if is_network is None:
        reason = _attribute(error, "reason") if isinstance(error, URLError) else None
        inner = reason if isinstance(reason, BaseException) else error.__cause__
        return outage_of(inner, n_wraps=n_wraps - 1) if inner is not None and n_wraps else None
    if not is_network:
        return None
    was_sent = not isinstance(error, _UNSENT)
    return InfrastructureFault(_text(error), error_type="network", may_be_billed=was_sent)


def _is_network(error: Exception) -> bool | None:
    """Return whether a network failed, by class and errno; ``None`` if the cause decides."""
    if isinstance(error, URLError):
        is_wrapper = isinstance(error.reason, BaseException)
        return None if is_wrapper else not str(error.reason).startswith(_BAD_ADDRESS)
    if isinstance(error, _BUILT_IN):
        return True
    state = _attribute(error, "sqlstate") or _attribute(error, "pgcode")
    if isinstance(state, str):
        return state.startswith(_SQL_STATES)
    for base in type(error).__mro__:
        root = str(base.__module__).partition(".")[0]
        for key in ((root, base.__name__), ("*", base.__name__)):
            if key in _CLASSES:
                return _CLASSES[key]
    if isinstance(error, OSError):
        # asyncio raises this if every address of a host refused.
        is_each = error.errno is None and _text(error).startswith("Multiple exceptions: [Errno")
        return True if is_each or error.errno in _ERRNOS else None
    return None


def _statuses(error: Exception) -> Iterator[int]:
    """Yield the HTTP statuses of 300 or more in an exception, the most reliable first."""
    response = _attribute(error, "response")
    code = f"{_item(response, 'Error', 'Code')}"
    busy = next((value for part, value in _AWS.items() if re.search(part, code, re.I)), None)
    values: Iterable[object]
    if _is_aws(response):
        values = (busy or _item(response, "ResponseMetadata", "HTTPStatusCode"),)
    else:
        names = ((error, "status_code"), (error, "status"), (error, "http_status"))
        more = ((response, "status_code"), (response, "status"))
        # Without an HTTP exchange, a class's `code` may be any number, such as a product's 500.
        is_http = not _EXCHANGE.isdisjoint(dir(error))
        codes = ((error, "code"),) if is_http else ()
        attributes = (_attribute(holder, name) for holder, name in (*names, *more, *codes))
        # A code is used only if there is no status.
        values = chain(attributes, (_grpc_status(error), busy))
    for value in values:
        is_number = isinstance(value, int | str)
        if is_number and re.fullmatch(r"[345]\d\d", text := f"{value}"):
            yield int(text)


def _grpc_status(error: Exception) -> int | None:
    """Return the HTTP status equivalent to an error of ``grpcio`` or ``grpclib``."""
    roots = {str(base.__module__).partition(".")[0] for base in type(error).__mro__}
    if roots.isdisjoint({"grpc", "grpclib"}):
        return None
    try:
        status = getattr(error, "status", None) or error.code()  # type: ignore[attr-defined]
    except Exception:  # noqa: BLE001 - a user's exception may derive from one of them
        return None
    return _GRPC.get(str(_attribute(status, "name")))


def _headers(error: Exception) -> httpx.Headers:
    response = _attribute(error, "response")
    headers = _attribute(response, "headers") or _attribute(error, "headers")
    if _is_aws(response):
        headers = _item(response, "ResponseMetadata", "HTTPHeaders")
    try:
        pairs = [(str(name), str(value)) for name, value in headers.items()]  # type: ignore[attr-defined]
        return httpx.Headers(pairs, encoding="utf-8")
    except Exception:  # noqa: BLE001 - a user's exception may have anything of that name
        return httpx.Headers()


def _is_aws(response: object) -> bool:
    """Return whether it is a botocore response, and not the body of an answer."""
    return isinstance(response, Mapping) and "ResponseMetadata" in response


def _item(response: object, name: str, inner: str) -> object:
    part = response.get(name) if isinstance(response, Mapping) else None
    return part.get(inner) if isinstance(part, Mapping) else None


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a user's exception may fail to describe itself
        return None


def _text(error: Exception) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - as above
        return type(error).__name__
