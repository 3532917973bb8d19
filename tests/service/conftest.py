"""A service of a fresh store on loopback, with one token for each scope."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from convergence.client import Client
from convergence.service.server import Service, ServiceOptions
from convergence.service.tokens import SCOPES, TokenRegistry, read_tokens
from tasks.store.runtime.runtime_store import RuntimeStore

SECRETS: dict[str, str] = {scope: secrets.token_urlsafe(32) for scope in SCOPES}


def all_tokens() -> TokenRegistry:
    return read_tokens([f"{scope}={scope}" for scope in SCOPES], dict(SECRETS.items()))


Start = Callable[..., Service]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RuntimeStore]:
    with RuntimeStore(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def start(store: RuntimeStore) -> Iterator[Start]:
    """Start services that stop with the test."""
    with ExitStack() as stack:

        def started(**options: object) -> Service:
            chosen = ServiceOptions(**{"port": 0, **options})  # type: ignore[arg-type]
            return stack.enter_context(Service(store, all_tokens(), chosen))

        yield started


@pytest.fixture
def service(start: Start) -> Service:
    return start()


@pytest.fixture
def admin(service: Service) -> Iterator[Client]:
    with Client(service.url, token=SECRETS["admin"]) as client:
        yield client
