"""CPU per request of the HTTP service, against a bare FastAPI endpoint or LiteLLM's proxy.

    python -m benchmarks.service --seconds 6 --rounds 3 [--litellm VENV/bin/litellm]

Each server runs in a separate process, and this one calls it over the same keep-alive connections. The
bare endpoint validates a body of the same shape and returns JSON of the same size, without token or
store. Ours chooses an arm or stores a reward, durably. With `--litellm`, both proxies check a key and
forward a chat's answer from one loopback provider. Ours also draws an arm and durably logs decision, cost
and answer; LiteLLM stores nothing. CPU is the serving process's, over all threads.
"""

import asyncio
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import uvicorn
from fastapi import FastAPI

from benchmarks.answering import serving
from benchmarks.machine import cpu_of, describe_machine, options
from benchmarks.tables import header, row
from benchmarks.throughput import configuration
from convergence.client import AsyncClient
from convergence.service.bodies import SelectBody
from tasks.store.runtime.rows import Reward

TOKEN = "BENCHMARK_TOKEN"  # noqa: S105 - the name of a variable
N_ARMS, N_CONNECTIONS = 10, 16
LITELLM_PORT: Final = "4817"
Ask: TypeAlias = "Callable[[Connection, int], Awaitable[None]]"
WARM_UP_S = 5.0
"""Warm-up seconds: each of the first hundred rewards makes a new policy."""


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
        app, http="h11", ws="none", loop="asyncio", access_log=False, proxy_headers=False,
        log_config=None, log_level="warning",
    )  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(config).run(sockets=[listener])


class Connection:
    """Minimal HTTP client over one keep-alive connection."""

    def __init__(self, port: int, headers: str) -> None:
        self._port, self._headers = port, headers

    async def open(self) -> None:
        """Connect."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post a body and return the JSON answer."""
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


async def load(url: str, headers: str, seconds: float, ask: "Ask") -> list[float]:
    """Send requests for a duration; return the seconds of each call of ``ask``.

    Args:
        url: Server URL.
        headers: Headers of every request.
        seconds: Duration.
        ask: Sends requests over the connection with a given number.
    """
    port = int(url.rpartition(":")[2])
    connections = [Connection(port, headers) for _ in range(N_CONNECTIONS)]
    for connection in connections:
        await connection.open()
    end, times = time.perf_counter() + seconds, []

    async def pairs(connection: Connection, number: int) -> None:
        while time.perf_counter() < end:
            begun = time.perf_counter()
            await ask(connection, number)
            times.append(time.perf_counter() - begun)

    await asyncio.gather(*(pairs(c, number) for number, c in enumerate(connections)))
    return times


async def ask_pair(connection: Connection, number: int) -> None:
    """Request an arm and reward it."""
    user = {"user_id": f"user-{number}"}
    chosen = await connection.post("/v1/systems/mood/select", user)
    reward = {**user, "decision_id": chosen["decision_id"], "reward": 1}
    await connection.post("/v1/systems/mood/update", reward)


async def ask_chat(connection: Connection, number: int) -> None:
    """Request a chat answer."""
    messages = [{"role": "user", "content": "Is it raining in Ulm? " * 20}]
    body = {"model": "convergence/mood", "messages": messages, "user": f"user-{number}"}
    await connection.post("/v1/chat/completions", body)


def measured(
    command: list[str], headers: str, seconds: float, folder: str, port: str = ""
) -> tuple[float, float, float]:
    """Return CPU milliseconds per request, requests per second, and the p99 latency in milliseconds.

    Args:
        command: Server command, which prints its address unless ``port`` is given.
        headers: Headers of every request.
        seconds: Duration.
        folder: Working directory of the command.
        port: Port that the command listens on.
    """
    environment = {**os.environ, "COLUMNS": "400", "PYTHONPATH": str(Path.cwd())}
    with subprocess.Popen(
        command, stdout=None if port else subprocess.PIPE, text=True, env=environment, cwd=folder
    ) as process:
        if process.stdout is not None:
            port = process.stdout.readline().rpartition(":")[2].strip()
        with socket.socket() as client:
            while client.connect_ex(("127.0.0.1", int(port))):
                time.sleep(0.1)
        url = f"http://127.0.0.1:{port}"
        if "--token" in command:
            asyncio.run(offer(url, headers))
        is_chat = "--config" in command
        ask = ask_chat if is_chat else ask_pair
        asyncio.run(load(url, headers, WARM_UP_S, ask))
        begun = cpu_of(process.pid)
        times = asyncio.run(load(url, headers, seconds, ask))
        used = cpu_of(process.pid) - begun
        process.terminate()
    n_requests = (1 if is_chat else 2) * len(times)
    p99 = statistics.quantiles(times, n=100)[98] * 1e3
    return used / n_requests * 1e3, n_requests / seconds, p99


async def offer(url: str, headers: str) -> None:
    """Activate the arms."""
    token = headers.strip().rpartition(" ")[2]
    async with AsyncClient(url, token=token) as client:
        for number in range(N_ARMS):
            await client.offer("mood", f"arm-{number}", {"temperature": number / 10})


def configure(folder: Path, provider: str) -> None:
    """Write both proxies' configurations, with one model and one key."""
    ours = configuration("openai", provider)
    ours["search_space"]["parameters"]["temperature"]["default"] = 0.5
    model = {"model": "openai/gpt-4o-mini", "api_base": f"{provider}/v1", "api_key": "none"}
    listed = {"model_name": "convergence/mood", "litellm_params": model}
    theirs = {"model_list": [listed], "general_settings": {"master_key": os.environ[TOKEN]}}
    for name, value in (("optimization.yaml", ours), ("litellm.yaml", theirs)):
        (folder / name).write_text(json.dumps(value))


def main() -> None:
    """Serve, send requests and print the table."""
    args = options(__doc__, seconds=5.0, rounds=3, litellm="")
    secret = os.environ[TOKEN] = secrets.token_urlsafe(32)
    headers = f"Authorization: Bearer {secret}\r\n"
    print(describe_machine())
    print(header("server", "CPU ms a request", "requests/s", "p99 of a pair, ms"))
    found: dict[str, list[float]] = {args.litellm or "bare FastAPI": [], "ours, durable": []}
    python = [sys.executable, "-m"]
    for _ in range(args.rounds):
        with (
            tempfile.TemporaryDirectory() as folder,
            serving("benchmarks.throughput", ["serve"]) as provider,
        ):
            configure(Path(folder), provider)
            serve = f"convergence serve --token {TOKEN} --port 0 --rate 0"
            ours = [*python, *serve.split()]
            commands = [
                [*python, "benchmarks.service", "bare"],
                [*ours, "--store", f"{folder}/store"],
            ]
            if args.litellm:
                proxy = f"--host 127.0.0.1 --port {LITELLM_PORT} --config litellm.yaml"
                chat = [*ours, "--chat", "--config", "optimization.yaml"]
                commands = [[args.litellm, *proxy.split()], chat]
            ports = [LITELLM_PORT if args.litellm else "", ""]
            for (name, values), command, port in zip(found.items(), commands, ports, strict=True):
                cpu, rate, p99 = measured(command, headers, args.seconds, folder, port)
                values.append(cpu)
                print(row(name, f"{cpu:.3f}", f"{rate:,.0f}", f"{p99:.1f}"), flush=True)
    plain, durable = (statistics.median(values) for values in found.values())
    print(f"\nRatio of medians: {durable / plain:.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        bare()
    else:
        main()
