"""What goes wrong with a call over real sockets: whose fault it is, when it ends, what it costs."""

import asyncio
import contextlib
import socket
import threading
from typing import Any

import pytest

from convergence_core.budget.prices import Price, PriceTable
from convergence_core.errors import Billed, CandidateFault, InfrastructureFault
from convergence_core.records import RateInfo, Usage
from tasks.secrets.redaction import Secrets
from tasks.targets.endpoint import HttpTarget
from tests.support.configurations import http_api, loaded
from tests.support.http_server import Answer, LoopbackServer
from tests.support.http_targets import CASE, ask, fault_of


@pytest.mark.parametrize(
    "status", [408, 409, 421, 424, 425, 429, 444, 460, 499, 500, 502, 503, 504]
)
def test_rate_limits_and_server_errors_may_heal(status):
    fault = fault_of(Answer({}, status, {"retry-after": "3"}))
    assert isinstance(fault, InfrastructureFault)
    assert (fault.retryable, fault.retry_after_s, fault.error_type) == (
        True,
        3.0,
        f"http_{status}",
    )
    assert fault.rate == RateInfo(retry_after_s=3.0)


@pytest.mark.parametrize("status", [407, 426, 464, 495, 496, 497])
def test_what_is_refused_before_it_is_read_is_nobodys_low_reward_and_does_not_heal(status):
    fault = fault_of(Answer({}, status))
    assert isinstance(fault, InfrastructureFault)
    assert (fault.retryable, fault.error_type) == (False, f"http_{status}")


@pytest.mark.parametrize(
    ("status", "body"),
    [(402, {}), (429, {"error": {"code": "insufficient_quota"}})],
)
def test_spent_credit_does_not_heal_and_is_nobodys_low_reward(status, body):
    with LoopbackServer(lambda _: Answer(body, status)) as server:
        auth = {"type": "bearer", "token_env": "MY_TOKEN"}
        with pytest.raises(InfrastructureFault, match="MY_TOKEN is out of credit") as caught:
            ask(http_api(server.url, auth=auth), environ={"MY_TOKEN": "right"})
    assert (caught.value.retryable, caught.value.error_type) == (False, f"http_{status}")


@pytest.mark.parametrize("status", [400, 404, 413, 422])
def test_other_refusals_are_what_the_parameters_caused(status):
    fault = fault_of(Answer({"detail": "k is too large"}, status))
    assert isinstance(fault, CandidateFault)
    assert "k is too large" in fault.details


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        (Answer(b'{"result": "hal'), "bad_body"),
        (Answer(b""), "bad_body"),
        (Answer(b"<html>gateway</html>", headers={"content-type": "text/html"}), "bad_body"),
        (Answer({"result": "x" * 1000}, cut_after=50), "network"),
    ],
)
def test_cut_and_broken_bodies_may_heal(answer, error_type):
    fault = fault_of(answer)
    assert isinstance(fault, InfrastructureFault)
    assert (fault.retryable, fault.error_type) == (True, error_type)
    assert fault.may_be_billed, "the server did its work"


# -- time


class DrippingServer:
    """Sends the head of an answer at once, and its body one byte at a time, without end."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "DrippingServer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        connection, _ = self._socket.accept()
        with connection, contextlib.suppress(OSError):
            connection.recv(65_536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not self._stopped.wait(0.01):
                connection.sendall(b" ")


def test_a_body_that_never_ends_ends_at_the_total_though_every_byte_is_in_time():
    request = {"timeout_seconds": 1.2}
    with DrippingServer() as server, pytest.raises(InfrastructureFault) as caught:
        ask(http_api(server.url, request=request))
    assert (caught.value.error_type, caught.value.may_be_billed) == ("timeout", True)
    assert "1.2 s" in str(caught.value)


def test_a_server_without_room_for_connections_ends_at_the_connection():
    """A full backlog: the kernel answers no further handshake."""
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        contextlib.ExitStack() as stack,
    ):
        address = full.getsockname()
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(address)
        request = {"timeout_seconds": 0.2}
        with pytest.raises(InfrastructureFault) as caught:
            ask(http_api(f"http://127.0.0.1:{address[1]}", request=request))
    assert (caught.value.error_type, caught.value.retryable) == ("connect_timeout", True)
    assert not caught.value.may_be_billed
    assert "within 0.2 s" in str(caught.value)


@pytest.mark.parametrize("status", [502, 504, 524])
def test_what_a_gateway_gave_up_on_may_be_billed(status):
    fault = fault_of(Answer({}, status))
    assert isinstance(fault, InfrastructureFault)
    assert fault.may_be_billed


# -- money


def target_of(url="http://127.0.0.1:1/", *, request_usd=None, **more) -> HttpTarget:
    price = {} if request_usd is None else {"http": Price(request=request_usd)}
    made = loaded(api=http_api(url, **more))
    return HttpTarget(
        made.configuration.api,
        secrets=Secrets({}),
        workers=2,
        prices=PriceTable(version="2026-01-01", overrides=price),
    )


def called(target) -> Any:
    async def go() -> Any:
        try:
            return await target.call({"k": 2}, CASE)
        finally:
            await target.aclose()

    return asyncio.run(go())


def test_what_the_answer_says_it_cost_wins_over_the_price():
    with LoopbackServer(lambda _: Answer({"result": 1, "usd": 0.5})) as server:
        reply = called(target_of(server.url, request_usd=2.0, response={"cost_field": "usd"}))
    assert (reply.cost_usd, reply.price_version) == (0.5, None)


@pytest.mark.parametrize(
    ("answer", "error_type"),
    [
        ({"success": False, "error": "no", "usd": 0.25}, "reported_failure"),
        ({"other": 1, "usd": 0.25}, "missing_result"),
    ],
)
def test_a_useless_answer_is_billed_all_the_same(answer, error_type):
    fields = {"cost_field": "usd", "result_field": "data"}
    fault = fault_of(Answer(answer), response=fields)
    assert fault.error_type == error_type
    assert fault.billed == Billed(usage=Usage(), cost_usd=0.25)
