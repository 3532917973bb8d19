"""What the service does with connections that send, or read, too slowly, and with too many."""

import re
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx

from convergence.client import Client
from convergence.service.server import Service
from tests.service.conftest import SECRETS, Start

PATIENCE_S = 120.0
"""Longer than any wait here takes, also on a busy machine."""
HEALTH = (
    f"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {SECRETS['admin']}\r\n\r\n".encode()
)


@contextmanager
def connected(service: Service | str, *, receives: int | None = None) -> Iterator[socket.socket]:
    url = httpx.URL(service if isinstance(service, str) else service.url)
    made = socket.socket()
    made.settimeout(PATIENCE_S)
    if receives is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receives)
    with made:
        made.connect((url.host, url.port))
        yield made


def rest(open_: socket.socket) -> bytes:
    """Return all that comes until the other side closes."""
    found = b""
    try:
        while part := open_.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def dripped(open_: socket.socket, byte: bytes) -> bytes:
    """Send a byte again and again until the other side says something or closes."""
    while not select.select([open_], [], [], 0.02)[0]:
        open_.sendall(byte)
    return rest(open_)


def answered(open_: socket.socket) -> bytes:
    """Ask for the health and return the head of the answer; the connection stays open."""
    open_.sendall(HEALTH)
    found = b""
    while b'"waiting"' not in found:
        part = open_.recv(65_536)
        assert part, f"closed after {found!r}"
        found += part
    return found.partition(b"\r\n")[0]


def closed(service: Service, why: str) -> int:
    """Return how many connections the service has closed for a reason."""
    page = httpx.get(
        f"{service.url}/metrics", headers={"Authorization": f"Bearer {SECRETS['admin']}"}
    )
    found = re.search(rf'convergence_connections_closed_total{{why="{why}"}} (\d+)', page.text)
    return 0 if found is None else int(found[1])


def test_a_head_that_never_ends_is_refused_though_bytes_come(start: Start):
    service = start(step_s=0.2)
    with connected(service) as open_:
        open_.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert dripped(open_, b"a").startswith(b"HTTP/1.1 408 ")
    assert closed(service, "not sent") == 1


def test_the_rest_of_a_refused_body_has_its_time(start: Start):
    service = start(step_s=0.2)
    with connected(service) as open_:
        open_.sendall(
            b"POST /v1/systems/bot/select HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"
        )
        assert open_.recv(12) == b"HTTP/1.1 401"
        while closed(service, "not sent") == 0:
            try:
                open_.sendall(b"{")
            except OSError:
                break
        rest(open_)
    assert closed(service, "not sent") == 1


def test_an_answer_that_is_not_read_is_dropped(start: Start):
    service = start(step_s=0.2)
    with Client(service.url, token=SECRETS["admin"]) as admin:
        for number in range(80):
            admin.offer("bot", f"arm{number}", {"text": "x" * 60_000})
    with connected(service, receives=4_096) as open_:
        path = "/v1/systems/bot/arms"
        open_.sendall(HEALTH.replace(b"/health", path.encode()))
        while closed(service, "not read") == 0:
            pass
        assert len(rest(open_)) < 80 * 60_000


def test_whoever_opens_connections_takes_their_own_places(start: Start):
    service = start(connections=8)
    with ExitStack() as stack:
        known = stack.enter_context(connected(service))
        assert answered(known) == b"HTTP/1.1 200 OK"
        for _ in range(60):
            stranger = stack.enter_context(connected(service))
            stranger.sendall(b"GET /health HTTP/1.1\r\n")
        assert answered(known) == b"HTTP/1.1 200 OK", "a client with a token keeps its connection"
        new = stack.enter_context(connected(service))
        assert answered(new) == b"HTTP/1.1 200 OK", "and a new one gets one"
        assert closed(service, "displaced") >= 50


def test_where_all_connections_work_a_new_one_is_told_to_come_again(start: Start):
    service = start(connections=3)
    head = HEALTH.replace(b"GET /health", b"POST /v1/systems/bot/select")
    with ExitStack() as stack:
        busy = []
        for _ in range(3):
            open_ = stack.enter_context(connected(service))
            open_.sendall(
                head.replace(b"Host", b"Expect: 100-continue\r\nContent-Length: 17\r\nHost")
            )
            assert open_.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n", "it waits for the body"
            busy.append(open_)
        with connected(service) as more:
            answer = rest(more)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After: 1" in answer
        for open_ in busy:
            open_.sendall(b'{"user_id": "u1"}')
            assert open_.recv(12) == b"HTTP/1.1 404", "there is no such system yet"
