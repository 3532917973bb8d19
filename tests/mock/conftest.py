"""A mock server for the folder's tests, and clients for it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from tasks.mock.mock_server import MockServer

Asking: TypeAlias = Callable[[AsyncOpenAI], Awaitable[Any]]


def ask(server: MockServer, asking: Asking, **options: Any) -> Any:
    """Run requests with the real client, without retries."""
    # One limit, also for connecting: a busy machine may exceed the client's default of five seconds.
    fixed = {"base_url": f"{server.url}/v1", "api_key": "none", "max_retries": 0, "timeout": 600.0}
    options = {**fixed, **options}

    async def go() -> Any:
        # Loopback uses no TLS, and loading certificates takes longer than all requests.
        transport = DefaultAsyncHttpxClient(verify=False)
        async with AsyncOpenAI(**options, http_client=transport) as client:
            return await asking(client)

    return asyncio.run(go())


@pytest.fixture(scope="session")
def server() -> Iterator[MockServer]:
    with MockServer() as running:
        yield running
