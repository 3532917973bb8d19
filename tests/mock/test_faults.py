"""Faults on purpose, limits, counts and the log, as clients meet them."""

import asyncio
import json
import math
import time
from collections import Counter
from typing import Any, get_args

import openai

from tasks.mock.mock_server import MockServer
from tasks.mock.options import FaultKind, MockOptions
from tests.mock.conftest import ask

CHAOS: dict[str, Any] = {
    "rate_429": 0.2,
    "retry_after_s": 0.05,
    "rate_500": 0.1,
    "rate_cut": 0.1,
    "rate_invalid": 0.1,
}


def said(i: int) -> Any:
    return [{"role": "user", "content": f"What is {i} + 1?"}]


async def outcome(client: Any, i: int, **fields: Any) -> str:
    """Return what a client sees of one attempt, in the words of ``FaultKind``."""
    try:
        answer = await client.chat.completions.create(model="m", messages=said(i), **fields)
    except openai.RateLimitError:
        return "429"
    except openai.InternalServerError:
        return "500"
    except openai.APITimeoutError:
        return "hang"
    except openai.APIConnectionError:
        return "cut"
    except (openai.APIResponseValidationError, json.JSONDecodeError):
        return "invalid"
    return "answer" if answer.choices else "invalid"


def outcomes(server: MockServer, order: list[int], **fields: Any) -> dict[int, str]:
    async def go(client: Any) -> list[str]:
        slots = asyncio.Semaphore(16)

        async def one(i: int) -> str:
            async with slots:
                return await outcome(client, i, **fields)

        return list(await asyncio.gather(*map(one, order)))

    return dict(zip(order, ask(server, go), strict=True))


def test_faults_have_the_stated_frequencies():
    rates = {"429": 0.2, "500": 0.1, "hang": 0.05, "cut": 0.05, "invalid": 0.05}
    options = MockOptions(**{f"rate_{name}": rate for name, rate in rates.items()})  # type: ignore[arg-type]  # shares all
    n = 20_000
    met: Counter[str] = Counter(options.fault_of(f"request {i // 4}", i % 4) for i in range(n))
    assert set(met) == set(get_args(FaultKind))
    for name, rate in rates.items():
        deviation = math.sqrt(n * rate * (1.0 - rate))
        assert abs(met[name] - n * rate) < 3.5 * deviation, (name, met[name] / n, rate)


def test_every_attempt_has_its_own_fault_whatever_the_order():
    order = list(range(60))
    seen = []
    for arranged in (order, order[::-1]):
        with MockServer(MockOptions(**CHAOS)) as server:
            attempts = [outcomes(server, arranged), outcomes(server, arranged)]
            by_fate = server.stats()["by_fate"]
        assert Counter(fate for met in attempts for fate in met.values()) == by_fate
        assert set(by_fate) == set(get_args(FaultKind)) - {"hang"}
        seen.append(attempts)
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[0][1]


def test_streams_are_cut_and_spoiled_too():
    async def stream(client: Any) -> str:
        text = ""
        try:
            events = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "Say: " + "a b " * 9}],
                stream=True,
            )
            async for event in events:
                text += event.choices[0].delta.content or ""
        except (json.JSONDecodeError, openai.APIError, openai.APIResponseValidationError) as error:
            return type(error).__name__
        except Exception as error:  # noqa: BLE001 - the transport's own, which the client lets through
            return type(error).__name__
        return f"whole: {text}"

    for rates in ({"rate_cut": 1.0}, {"rate_invalid": 1.0}):
        with MockServer(MockOptions(**rates)) as server:  # type: ignore[arg-type]
            assert not ask(server, stream).startswith("whole")


def test_hanging_requests_block_no_others():
    options = MockOptions(rate_hang=0.3, hang_s=600.0)
    order = list(range(40))
    with MockServer(options) as server:

        async def go(client: Any) -> tuple[list[str], int]:
            asking = [asyncio.create_task(outcome(client, i)) for i in order]
            while not (n_hang := server.stats()["by_fate"].get("hang", 0)) or (
                sum(task.done() for task in asking) + n_hang < len(order)
            ):
                await asyncio.sleep(0.001)
            seen = [task.result() for task in asking if task.done()]
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
            return seen, n_hang

        seen, n_hang = ask(server, go)
        while server.stats()["in_flight"]:
            time.sleep(0.001)  # the server has to notice that they are gone
        stats = server.stats()
    assert Counter(seen) == {"answer": stats["by_fate"]["answer"]}
    assert stats["by_fate"]["hang"] == n_hang > 5
    assert stats["abandoned"] == n_hang
