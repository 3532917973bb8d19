"""The clients: both ask alike, ask again what may pass, and tell what was refused."""

import asyncio
import secrets

import pytest

from convergence.client import AsyncClient, Client, ServiceRefusedError
from convergence.service.server import Service
from tests.service.conftest import SECRETS
from tests.support.http_server import Answer, LoopbackServer, Request

NOBODYS = secrets.token_urlsafe(32)
CHOSEN = {
    "decision_id": "d", "arm_id": "a", "params": {}, "sampled_value": 0.5, "propensity": 1.0,
    "policy_version": 1, "fresh": True, "added_by_a_later_service": 1,
}  # fmt: skip


def test_the_async_client_does_the_same(service: Service):
    async def serve() -> None:
        async with AsyncClient(service.url, token=SECRETS["admin"]) as client:
            for name in ("a", "b"):
                await client.offer("a bot ü", name, {"n": name}, prior=(0.5, 0.1))
            chosen = await client.select("a bot ü", user_id="u")
            assert chosen.decision_id is not None
            told = await client.update(
                "a bot ü", user_id="u", decision_id=chosen.decision_id, reward=1.0
            )
            assert told.status == "ok"
            found = await client.decision("a bot ü", user_id="u", decision_id=chosen.decision_id)
            assert found.reward == 1.0
            assert (await client.gates("a bot ü")).champion is None
            assert await client.retire("a bot ü", "b")
            assert [arm.retired for arm in await client.arms("a bot ü")] == [False, True]

    asyncio.run(serve())


def test_refusals_are_told_with_their_status(service: Service):
    with (
        Client(service.url, token=SECRETS["select"]) as client,
        pytest.raises(ServiceRefusedError, match="lacks the scope admin") as refused,
    ):
        client.offer("bot", "a", {})
    assert refused.value.status == 403
    with (
        Client(service.url, token=secrets.token_urlsafe(32)) as client,
        pytest.raises(ServiceRefusedError, match="a known bearer token"),
    ):
        client.select("bot", user_id="u")


def test_what_may_pass_is_asked_again_under_the_same_name():
    keys: list[str] = []

    def answer(request: Request) -> Answer:
        keys.append({k.lower(): v for k, v in request.headers.items()}["idempotency-key"])
        if len(keys) < 3:
            return Answer({"detail": "later"}, status=(429, 503)[len(keys) - 1])
        return Answer(CHOSEN)

    with LoopbackServer(answer) as server, Client(server.url, token=NOBODYS) as client:
        assert client.select("bot", user_id="u").arm_id == "a"
        assert len(set(keys)) == 1
        client.select("bot", user_id="u")
    assert len(set(keys)) == 2
