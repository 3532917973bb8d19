"""Connections of a client: as many as are needed, used again, given back whatever happens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator

import httpx
import pytest

from convergence_core.errors import ConfigurationError
from tasks.http.clients import ClientSettings
from tasks.http.environment import (
    certificates,
    check_network_environment,
    exempt_from_proxies,
    proxy_of,
)


class Server:
    """Counts its connections; answers a path when the test says so, ``/now`` at once."""

    def __init__(self) -> None:
        self.url = ""
        self.n_connections = 0
        self.n_open = 0
        self.n_waiting = 0
        self.go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_connections += 1
        self.n_open += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if b" /cut " in head:
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{")
                    break
                if b"/now " not in head:
                    self.n_waiting += 1
                    await self.go.wait()
                    self.n_waiting -= 1
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                await writer.drain()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.n_open -= 1


def client_of(n_connections: int) -> httpx.AsyncClient:
    return ClientSettings(n_connections=n_connections).open()


@contextlib.asynccontextmanager
async def running() -> AsyncIterator[Server]:
    server = Server()
    sockets = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{sockets.sockets[0].getsockname()[1]}"
    async with sockets:
        yield server
        server.go.set()
        await until(lambda: server.n_open == 0)


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.001)


async def ask_at_once(client: httpx.AsyncClient, server: Server, n: int) -> None:
    server.go.clear()
    asked = [asyncio.create_task(client.get(f"{server.url}/wait")) for _ in range(n)]
    await until(lambda: server.n_waiting == n)
    server.go.set()
    await asyncio.gather(*asked)


def test_a_connection_is_used_again_and_there_are_as_many_as_requests_at_once():
    async def check() -> None:
        async with running() as server, client_of(8) as client:
            for _ in range(20):
                await client.get(f"{server.url}/now")
            assert server.n_connections == 1
            for _ in range(3):
                await ask_at_once(client, server, 8)
            assert server.n_connections == 8

    asyncio.run(check())


def test_more_requests_than_connections_wait_without_a_time_out():
    async def check() -> None:
        async with running() as server, client_of(2) as client:
            asked = [asyncio.create_task(client.get(f"{server.url}/wait")) for _ in range(6)]
            await until(lambda: server.n_waiting == 2)
            assert server.n_connections == 2
            server.go.set()
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}
            assert server.n_connections == 2

    asyncio.run(check())


def test_requests_that_were_cut_or_given_up_leave_their_place_to_others():
    async def check() -> None:
        async with running() as server, client_of(1) as client:
            for _ in range(3):
                with pytest.raises(httpx.RemoteProtocolError):
                    await client.get(f"{server.url}/cut")
                given_up = asyncio.create_task(client.get(f"{server.url}/wait"))
                await until(lambda: server.n_waiting == 1)
                given_up.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await given_up
                assert (await client.get(f"{server.url}/now")).json() == {}
                server.go.set()
                await until(lambda: server.n_waiting == 0)
                server.go.clear()

    asyncio.run(check())


def test_connections_that_nobody_needs_are_closed_one_with_each_request(
    monkeypatch: pytest.MonkeyPatch,
):
    async def check() -> None:
        async with running() as server, client_of(8) as client:
            await ask_at_once(client, server, 8)
            monkeypatch.setattr("tasks.http.clients.IDLE_S", -1.0)
            for _ in range(8):
                await client.get(f"{server.url}/now")
            await until(lambda: server.n_open == 1)

    asyncio.run(check())


def test_closing_the_client_closes_all_connections():
    async def check() -> None:
        async with running() as server:
            client = client_of(4)
            await ask_at_once(client, server, 4)
            await client.aclose()
            await until(lambda: server.n_open == 0)

    asyncio.run(check())


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment without variables of proxies and certificates."""
    names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"]
    for name in [*names, *map(str.lower, names), "SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE"]:
        monkeypatch.setenv(name, "")  # restored at the end, also where the test leaves a value
        monkeypatch.delenv(name)
    certificates.cache_clear()
    yield monkeypatch
    certificates.cache_clear()


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
def test_a_proxy_of_the_environment_is_used(environment: pytest.MonkeyPatch, variable: str):
    async def check() -> None:
        async with running() as proxy:
            environment.setenv(variable, proxy.url)
            async with client_of(2) as client:
                assert (await client.get("http://example.invalid/now")).json() == {}
            assert proxy.n_connections == 1

    asyncio.run(check())


@pytest.mark.parametrize(
    ("no_proxy", "url", "is_direct"),
    [
        ("[::1]", "http://[::1]:80/", True),
        ("::1", "http://[::1]/", True),
        ("fe80::/10", "http://[fe80::7]/", True),
        ("fe80::/10", "http://[2001:db8::7]/", False),
        ("10.0.0.0/8", "http://10.20.30.40/", True),
        ("10.0.0.0/8", "http://11.20.30.40/", False),
        ("10.0.0.0/8", "http://ten.example.com/", False),
        (".example.com, localhost", "http://a.Example.com/", True),
        ("example.com", "http://notexample.com/", False),
        ("*.example.com", "http://a.b.example.com/", True),
        ("example.com:8080", "http://example.com:8080/", True),
        ("example.com:8080", "http://example.com/", False),
        ("[::1]:8080", "http://[::1]:8080/", True),
        ("http://example.com", "http://example.com/", True),
        ("no%such:thing", "http://example.com/", False),
        ("a,*", "http://example.com/", True),
    ],
)
def test_exemptions_of_the_environment_hold_and_leave_httpx_able_to_open_clients(
    environment: pytest.MonkeyPatch, no_proxy: str, url: str, is_direct: bool
):
    environment.setenv("HTTP_PROXY", "proxy.example.com:3128")
    environment.setenv("NO_PROXY", no_proxy)
    check_network_environment()
    httpx.Client().close()
    address = httpx.URL(url)
    found = proxy_of(address.scheme, address.host, address.port)
    assert found == (None if is_direct else "http://proxy.example.com:3128")


def test_an_address_of_this_process_is_exempt_from_proxies(environment: pytest.MonkeyPatch):
    environment.setenv("http_proxy", "http://proxy.example.com:3128")
    environment.setenv("NO_PROXY", "[::1]")
    exempt_from_proxies("127.0.0.1:4711")
    assert proxy_of("http", "127.0.0.1", 4711) is None
    assert proxy_of("http", "127.0.0.1", 4712) is not None
    assert proxy_of("http", "::1", None) is None


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("https_proxy", "ftp://me:s3cr3t@proxy:21", "must be the address of a proxy"),
        ("HTTP_PROXY", "http://me:s3cr3t@proxy:port", "must be the address of a proxy"),
        ("ALL_PROXY", "socks5://me:s3cr3t@proxy:1080", "`pip install socksio`"),
        ("SSL_CERT_FILE", "/no/such/ca.pem", "/no/such/ca.pem (No such file or directory)"),
        ("SSL_CERT_FILE", __file__, "certificates in PEM form"),
        ("SSL_CERT_DIR", "/no/such/folder", "must name a folder of certificates"),
        ("SSLKEYLOGFILE", "/no/such/keys", "must name a file that can be written"),
    ],
)
def test_a_variable_that_no_client_can_use_is_named_before_a_call(
    environment: pytest.MonkeyPatch, name: str, value: str, words: str
):
    environment.setattr("importlib.util.find_spec", lambda _: None)
    environment.setenv(name, value)
    with pytest.raises(ConfigurationError) as caught:
        check_network_environment()
    assert str(caught.value).startswith(f"`{name}` ")
    assert words in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
