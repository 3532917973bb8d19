"""CPU per request of the HTTP service beside a bare FastAPI endpoint, in one run.

    python -m benchmarks.service --seconds 6 --rounds 3

Both are served by the same uvicorn in a process of their own, asked over the same kept-alive
connections by this one. The bare endpoint checks a body of the same form and returns JSON of the same
size: no token, no store. Ours chooses an arm or takes in a reward, durably. CPU is that of the serving
process, of all its threads.
"""

import asyncio
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import uvicorn
from fastapi import FastAPI

from benchmarks.machine import cpu_of, describe_machine, options
from benchmarks.tables import header, row
from convergence.client import AsyncClient
from convergence.service.bodies import SelectBody
from tasks.store.runtime.rows import Reward

TOKEN = "BENCHMARK_TOKEN"  # noqa: S105 - the name of a variable
N_ARMS, N_CONNECTIONS = 10, 16
WARM_UP_S = 5.0
"""Seconds of requests before those that count: the first hundred rewards make as many policies."""


def bare() -> None:
    """Serve the bare endpoint."""
    app = FastAPI(docs_url=None)

    @app.post("/v1/systems/{system}/select")
    async def select(system: str, body: SelectBody) -> dict[str, Any]:
        return {
            "decision_id": body.user_id * 4, "arm_id": "arm-0", "params": {"model": system},
            "sampled_value": 0.5, "propensity": 0.1, "policy_version": 1, "fresh": True,
        }  # fmt: skip

    @app.post("/v1/systems/{system}/update")
    async def update(system: str, body: Reward) -> dict[str, Any]:
        return {
            "success": True, "status": system, "reward": body.reward, "engagement_score": None,
            "grading_score": None, "computed_update": {"alpha": 1.0, "beta": 0.0},
        }  # fmt: skip

    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, http="h11", ws="none", loop="asyncio", access_log=False, proxy_headers=False,
        log_config=None, log_level="warning",
    )  # fmt: skip
    server = uvicorn.Server(config)

    async def serve() -> None:
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        print(f"http://127.0.0.1:{port}", flush=True)
        await serving

    asyncio.run(serve())


class Connection:
    """One kept-alive connection that sends and reads as little as HTTP allows."""

    def __init__(self, port: int, headers: str) -> None:
        self._port, self._headers = port, headers

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON that answers a body."""
        data = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        self._writer.write(head.encode() + data)
        answered = await self._reader.readuntil(b"\r\n\r\n")
        assert answered.startswith(b"HTTP/1.1 200"), answered
        length = int(answered.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        found: dict[str, Any] = json.loads(await self._reader.readexactly(length))
        return found


async def load(url: str, headers: str, seconds: float) -> tuple[int, list[float]]:
    """Send pairs of requests for so long; return requests and the seconds that each pair took.

    Args:
        url: the server's.
        headers: of every request.
        seconds: for how long.
    """
    port = int(url.rpartition(":")[2])
    connections = [Connection(port, headers) for _ in range(N_CONNECTIONS)]
    for connection in connections:
        await connection.open()
    end, times = time.perf_counter() + seconds, []

    async def pairs(connection: Connection, number: int) -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            chosen = await connection.post("/v1/systems/bot/select", {"user_id": f"user-{number}"})
            await connection.post(
                "/v1/systems/bot/update",
                {"user_id": f"user-{number}", "decision_id": chosen["decision_id"], "reward": 1},
            )
            times.append(time.perf_counter() - begun)

    await asyncio.gather(*(pairs(c, number) for number, c in enumerate(connections)))
    return 2 * len(times), times


def measured(command: list[str], headers: str, seconds: float) -> tuple[float, float, float]:
    """Return CPU milliseconds a request, requests a second, and p99 of a pair in milliseconds."""
    environment = {**os.environ, "COLUMNS": "400"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        url = "http://" + process.stdout.readline().rpartition("http://")[2].strip()
        if "--token" in command:
            asyncio.run(offer(url, headers))
        asyncio.run(load(url, headers, WARM_UP_S))
        begun = cpu_of(process.pid)
        n_requests, times = asyncio.run(load(url, headers, seconds))
        used = cpu_of(process.pid) - begun
        process.terminate()
    p99 = statistics.quantiles(times, n=100)[98] * 1e3
    return used / n_requests * 1e3, n_requests / seconds, p99


async def offer(url: str, headers: str) -> None:
    """Put the arms on offer."""
    token = headers.strip().rpartition(" ")[2]
    async with AsyncClient(url, token=token) as client:
        for number in range(N_ARMS):
            await client.offer("bot", f"arm-{number}", {"model": f"m{number}"})


def main() -> None:
    """Serve, ask, and print the table."""
    args = options(__doc__, seconds=5.0, rounds=3)
    secret = os.environ[TOKEN] = secrets.token_urlsafe(32)
    headers = f"Authorization: Bearer {secret}\r\n"
    print(describe_machine())
    print(header("server", "CPU ms a request", "requests/s", "p99 of a pair, ms"))
    found: dict[str, list[float]] = {"bare FastAPI": [], "ours, durable": []}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            ours = ["convergence", "serve", "--token", TOKEN, "--port", "0", "--rate", "0"]
            commands = (["benchmarks.service", "bare"], [*ours, "--store", folder])
            for (name, values), words in zip(found.items(), commands, strict=True):
                command = [sys.executable, "-m", *words]
                cpu, rate, p99 = measured(command, headers, args.seconds)
                values.append(cpu)
                print(row(name, f"{cpu:.3f}", f"{rate:,.0f}", f"{p99:.1f}"), flush=True)
    plain, durable = (statistics.median(values) for values in found.values())
    print(f"\nRatio of medians: {durable / plain:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        bare()
    else:
        main()
