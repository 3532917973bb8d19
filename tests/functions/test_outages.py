"""Exceptions of user functions: which tell of an outage, and which are the candidate's."""

import asyncio
import errno
import http.client
import socket
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError, URLError

import httpx
import pytest

from convergence_core.errors import CandidateFault, InfrastructureFault
from tasks.functions.workers import failure_of
from tasks.http.faults import status_fault

REQUEST = httpx.Request("POST", "https://h/v1")


def shaped(name: str, bases: tuple[type, ...] = (Exception,), *, module="client", **fields):
    """Return an exception as a client that is not installed raises it."""
    error = type(name, bases, {"__module__": module})("why")
    vars(error).update(fields)
    return error


def answered(status: int, **headers: str) -> httpx.Response:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=fields, request=REQUEST)


def of(path: str, *args, **fields):
    """Return an exception of a library, skipping the test where that is missing."""
    module, _, name = path.rpartition(".")
    return getattr(pytest.importorskip(module), name)(*args, **fields)


def of_optional(path: str, *args, **fields) -> Any:
    """Return what makes an exception of a library that the extra `test` does not install."""
    return pytest.param(lambda: of(path, *args, **fields), marks=pytest.mark.slow)


def wrapped(outer: Exception, inner: BaseException, *, is_cause: bool = True) -> Exception:
    outer.__cause__ = inner if is_cause else None
    outer.__context__ = inner
    return outer


def aws(code: str, status: int, **headers: str) -> dict[str, dict[str, Any]]:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return {"Error": {"Code": code, "Message": "m"}, "ResponseMetadata": metadata}


def grpc(name: str, *, is_lib: bool = False) -> Any:
    """Return an error of a call as ``grpcio`` or ``grpclib`` raises it."""
    status = SimpleNamespace(name=name)
    if is_lib:
        return shaped("GRPCError", module="grpclib.exceptions", status=status)
    base = shaped("RpcError", module="grpc").__class__
    return shaped("_InactiveRpcError", (base,), module="grpc._channel", code=lambda: status)


def outage(error: BaseException) -> InfrastructureFault:
    fault = failure_of(error).fault()
    assert isinstance(fault, InfrastructureFault)
    return fault


OUTAGES = {
    "reset": ConnectionResetError,
    "network unreachable": lambda: OSError(errno.ENETUNREACH, "Network is unreachable"),
    "no route": lambda: OSError(errno.EHOSTUNREACH, "No route to host"),
    "not connected": lambda: OSError(errno.ENOTCONN, "not connected"),
    "timed out": lambda: OSError(errno.ETIMEDOUT, "timed out"),
    "each address refused": lambda: OSError("Multiple exceptions: [Errno 111] ::1, [Errno 111]"),
    "no name": lambda: socket.gaierror(-2, "Name or service not known"),
    "cut answer": lambda: http.client.IncompleteRead(b"x"),
    "bad line": lambda: http.client.BadStatusLine("x"),
    "gone": lambda: http.client.RemoteDisconnected("x"),
    "cut stream": lambda: asyncio.IncompleteReadError(b"", 3),
    "urllib no answer": lambda: URLError("no route"),
    "urllib refused": lambda: URLError(ConnectionRefusedError()),
    "urllib 503": lambda: HTTPError("http://h", 503, "down", Message(), None),
    "httpx connect": lambda: httpx.ConnectError("x"),
    "httpx protocol": lambda: httpx.RemoteProtocolError("x"),
    "httpx 503": lambda: httpx.HTTPStatusError("x", request=REQUEST, response=answered(503)),
    "cause": lambda: wrapped(RuntimeError("no model"), httpx.ConnectError("x")),
    "group": lambda: ExceptionGroup("g", [ExceptionGroup("h", [httpx.ConnectError("x")])]),
    "tenacity": lambda: wrapped(shaped("RetryError"), httpx.ConnectError("x")),
    "status": lambda: shaped("E", status=503),
    "http_status": lambda: shaped("E", http_status=503),
    "text": lambda: shaped("E", status_code="503"),
    "code of a response": lambda: shaped("E", code=503, response=None),
    "code beside a body": lambda: shaped("E", code="503", url="u", response={"error": "e"}),
    "status beside a body": lambda: shaped("E", status_code=503, response={"error": "overloaded"}),
    "response.status": lambda: shaped("E", response=shaped("R", status=503)),
    "conflict": lambda: shaped("E", status_code=409),
    "too early": lambda: shaped("E", status_code=425),
    "aiohttp": lambda: shaped("ClientPayloadError", module="aiohttp.client_exceptions"),
    "aiohttp payload": of_optional("aiohttp.ClientPayloadError", "x"),
    "anthropic stream": lambda: shaped(
        "APIStatusError",
        (shaped("APIError", module="anthropic").__class__,),
        status_code=200,
        response=answered(200),
    ),
    "provider": lambda: shaped("RateLimitError", module="somebody"),
    "requests": lambda: of("requests.ConnectionError", "x"),
    "requests time": lambda: of("requests.ReadTimeout", "x"),
    "requests retries": lambda: of("requests.exceptions.RetryError", "too many 503s"),
    "requests chunk": lambda: of("requests.exceptions.ChunkedEncodingError", "x"),
    "urllib3 retries": lambda: of("urllib3.exceptions.MaxRetryError", None, "u"),
    "urllib3 protocol": lambda: of("urllib3.exceptions.ProtocolError", "x"),
    "urllib3 connect": lambda: of("urllib3.exceptions.NewConnectionError", None, "x"),
    "urllib3 read": lambda: of("urllib3.exceptions.ReadTimeoutError", None, "u", "x"),
    "openai stream": lambda: of("openai.APIError", "had an error", REQUEST, body={"code": None}),
    "openai time": lambda: of("openai.APITimeoutError", REQUEST),
    "openai 503": lambda: of("openai.APIStatusError", "x", response=answered(503), body=None),
    "aws 503": of_optional("botocore.exceptions.ClientError", aws("Unavailable", 503), "C"),
    "aws rate": of_optional(
        "botocore.exceptions.ClientError", aws("ThrottlingException", 400), "C"
    ),
    "aws rate without metadata": of_optional(
        "botocore.exceptions.ClientError", {"Error": {"Code": "ThrottlingException"}}, "C"
    ),
    "aws stream": of_optional(
        "botocore.exceptions.EventStreamError", aws("serviceUnavailableException", 400), "C"
    ),
    "aws stream's server": lambda: shaped("E", response=aws("internalServerException", 400)),
    "aws stream's model": lambda: shaped("E", response=aws("modelTimeoutException", 400)),
    "grpc down": lambda: grpc("UNAVAILABLE"),
    "grpc time": lambda: grpc("DEADLINE_EXCEEDED"),
    "grpc rate": lambda: grpc("RESOURCE_EXHAUSTED"),
    "grpc server": lambda: grpc("INTERNAL"),
    "grpclib": lambda: grpc("UNAVAILABLE", is_lib=True),
    "aws rate of any class": lambda: shaped("E", response={"Error": {"Code": "SlowDown"}}),
    "its own 503 beside a body": lambda: shaped("E", status=503, response={"error": "e"}),
    "its own 503 beside an error": lambda: shaped(
        "E", status=503, response={"Error": {"Code": "E1"}}
    ),
    "aws connect": of_optional("botocore.exceptions.EndpointConnectionError", endpoint_url="u"),
    "aws read": of_optional("botocore.exceptions.ReadTimeoutError", endpoint_url="u"),
    "aws closed": of_optional("botocore.exceptions.ConnectionClosedError", endpoint_url="u"),
    "google 503": of_optional("google.api_core.exceptions.ServiceUnavailable", "x"),
    "google time": of_optional("google.api_core.exceptions.RetryError", "x", cause=Exception()),
    "redis": lambda: of("redis.ConnectionError", "x"),
    "redis time": lambda: of("redis.TimeoutError", "x"),
    "psycopg": lambda: of("psycopg.OperationalError", "connection failed"),
    "psycopg shutdown": lambda: of("psycopg.errors.AdminShutdown", "x"),
    "websockets": lambda: of("websockets.exceptions.ConnectionClosedError", None, None),
}

CANDIDATES = {
    "urllib 400": lambda: HTTPError("http://h", 400, "bad", Message(), None),
    "a time limit of a page": lambda: shaped("TimeoutError", module="playwright.async_api"),
    "a class of that name": lambda: shaped("TimeoutError", module="__main__"),
    "OSError": lambda: OSError("no tokenizer"),
    "file": FileNotFoundError,
    "full disk": lambda: OSError(errno.ENOSPC, "No space left on device"),
    "urllib file": lambda: URLError(FileNotFoundError(errno.ENOENT, "no such file")),
    "urllib scheme": lambda: URLError("unknown url type: foo"),
    "httpx scheme": lambda: httpx.UnsupportedProtocol("x"),
    "discord": lambda: shaped("HTTPException", status=400, code=50035),
    "twilio": lambda: shaped("TwilioRestException", status=400, code=21211),
    "its own code": lambda: shaped("E", code=1001, url="u"),
    "its own 500": lambda: shaped("E", code=500),
    "its own 301": lambda: shaped("E", code="301"),
    "not found beside a body": lambda: shaped("E", status_code=404, response={"error": "e"}),
    "exit": lambda: SystemExit(500),
    "not found": lambda: shaped("E", status_code=404),
    "cause": lambda: wrapped(RuntimeError(), httpx.UnsupportedProtocol("x")),
    "refused by cause": lambda: wrapped(RuntimeError(), shaped("E", status_code=400)),
    "handled": lambda: wrapped(ValueError(), httpx.ConnectError("x"), is_cause=False),
    "half a group": lambda: ExceptionGroup("g", [httpx.ConnectError("x"), ValueError()]),
    "requests scheme": lambda: of("requests.exceptions.MissingSchema", "x"),
    "aws 400": of_optional(
        "botocore.exceptions.ClientError", aws("ValidationException", 400), "C"
    ),
    "aws bad request without status": of_optional(
        "botocore.exceptions.ClientError", {"Error": {"Code": "ValidationException"}}, "C"
    ),
    "its own 422 beside a limit": lambda: shaped(
        "E", status=422, response={"Error": {"Code": "LengthLimitExceeded"}}
    ),
    "aws number": lambda: shaped("E", response={"Error": {"Code": 503}}),
    "grpc argument": lambda: grpc("INVALID_ARGUMENT"),
    "grpc exists": lambda: grpc("ALREADY_EXISTS"),
    "grpc not found": lambda: grpc("NOT_FOUND"),
    "grpclib": lambda: grpc("INVALID_ARGUMENT", is_lib=True),
    "a user's error of a grpc class": lambda: shaped("E", module="grpc.x", code=14),
    "a code of another library": lambda: shaped(
        "E", code=lambda: SimpleNamespace(name="UNAVAILABLE")
    ),
    "psycopg slow": lambda: of("psycopg.errors.QueryCanceled", "statement timeout"),
    "psycopg syntax": lambda: of("psycopg.errors.SyntaxError", "x"),
    "openai length": lambda: of("openai.OpenAIError", "x"),
}


@pytest.mark.parametrize("error", OUTAGES.values(), ids=OUTAGES)
def test_an_outage_within_a_function_is_retried(error):
    assert outage(error()).retryable


@pytest.mark.parametrize("error", CANDIDATES.values(), ids=CANDIDATES)
def test_what_no_network_caused_is_the_candidates(error):
    assert isinstance(failure_of(error()).fault(), CandidateFault)


def test_a_status_means_for_a_function_what_it_means_for_an_endpoint():
    for status in range(300, 600):
        endpoint = status_fault(status, "", httpx.Headers(), url="u", secret=None)
        function = failure_of(shaped("E", status_code=status)).fault()
        assert type(function) is type(endpoint), status
        if isinstance(endpoint, InfrastructureFault):
            assert isinstance(function, InfrastructureFault)
            assert function.retryable == endpoint.retryable, status
            assert function.may_be_billed == endpoint.may_be_billed, status


def test_a_rate_limit_within_a_function_waits_as_long_as_the_server_asks():
    limited = httpx.HTTPStatusError("x", request=REQUEST, response=answered(429, retry_after="17"))
    for error in (limited, wrapped(RuntimeError(), limited), shaped("E", status=429, headers={"Retry-After": "17"})):  # fmt: skip
        fault = outage(error)
        assert (fault.retry_after_s, fault.may_be_billed) == (17.0, False)
    body = shaped("E", status_code=429, response={"e": 1}, headers={"Retry-After": "5"})
    assert outage(body).retry_after_s == 5.0
    error = shaped("ClientError", response=aws("Throttling", 400, **{"retry-after": "3"}))
    assert outage(error).retry_after_s == 3.0


def test_a_spent_account_within_a_function_is_not_asked_again():
    error = of("openai.RateLimitError", "Error code: 429 - insufficient_quota", response=answered(429), body=None)  # fmt: skip
    assert not outage(error).retryable


def test_an_exception_that_wraps_itself_is_the_candidates():
    error = RuntimeError()
    error.__cause__ = error
    assert isinstance(failure_of(error).fault(), CandidateFault)
