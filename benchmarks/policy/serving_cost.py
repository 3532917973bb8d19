"""CPU of ``/select_action`` beside a bare FastAPI endpoint that does the same matrix products.

Both are asked by one client over one connection, in turn; a process's own CPU time is read before and after. The
bare endpoint checks a body of the same fields, and has no tokens, limits, metrics, masks, draws or memory.
"""

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np

DIMENSION = 1536
ROUNDS, REQUESTS = 10, 200
BARE = """
import sys
import numpy as np, uvicorn
from typing import Annotated
from fastapi import FastAPI
from pydantic import BaseModel, Field
from convergence_core.policy import N_PROGRESS, PPOConfig, PPOState

config = PPOConfig(input_dim={dim} + N_PROGRESS, action_dim=7)
networks = PPOState.begin(config, np.random.default_rng(0)).networks
app = FastAPI()

class Body(BaseModel):
    embedding: list[Annotated[float, Field(strict=True)]]
    episode_id: str | None = None

@app.post("/select_action")
async def select_action(body: Body):
    seen = np.zeros((1, config.input_dim), dtype=np.float32)
    seen[0, : {dim}] = body.embedding
    logits, value = networks.policy.layers(seen)[-1], networks.value.layers(seen)[-1]
    return {{"action": int(logits.argmax()), "value": float(value[0, 0])}}

server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
import asyncio, socket
sock = socket.socket(); sock.bind(("127.0.0.1", 0)); sock.listen()
print(f"http://127.0.0.1:{{sock.getsockname()[1]}}", flush=True)
asyncio.run(server.serve(sockets=[sock]))
"""


def _started(command: Sequence[str], token: str) -> tuple["subprocess.Popen[str]", str]:
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    process = subprocess.Popen(
        command, env={**os.environ, **threads, "BENCH_TOKEN": token, "COLUMNS": "1000"},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    assert found is not None
    return process, found[0]


def _cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


def report() -> None:
    """Print the CPU of a request to each, and their ratio."""
    token, rng = secrets.token_urlsafe(32), np.random.default_rng(0)
    bodies = [{"embedding": rng.normal(size=DIMENSION).tolist()} for _ in range(50)]
    with tempfile.TemporaryDirectory() as folder:
        ours = [sys.executable, "-m", "convergence", "policy", "serve", "--token", "BENCH_TOKEN",
                "--port", "0", "--rate", "0", "--embedding", "bench", "--store", folder + "/s"]  # fmt: skip
        started = [_started([sys.executable, "-c", BARE.format(dim=DIMENSION)], token)]
        started.append(_started(ours, token))
        costs: list[list[float]] = [[], []]
        headers = {"Authorization": f"Bearer {token}"}
        try:
            for number in range(ROUNDS + 1):
                for at, (process, url) in enumerate(started):
                    before = _cpu_s(process.pid)
                    with httpx.Client(base_url=url, headers=headers) as client:
                        for n in range(REQUESTS):
                            found = client.post("/select_action", json=bodies[n % len(bodies)])
                            found.raise_for_status()
                    if number:  # the first round warms up
                        costs[at].append((_cpu_s(process.pid) - before) / REQUESTS * 1e3)
        finally:
            for process, _ in started:
                process.kill()
                process.communicate()
    bare, mine = (np.array(one) for one in costs)
    ratios = mine / bare
    print(
        f"/select_action at {DIMENSION:,} dimensions, CPU of the server for one request, mean of "
        f"{ROUNDS} rounds of {REQUESTS} ± standard error: bare FastAPI {_mean(bare)} ms, "
        f"ours {_mean(mine)} ms, ratio {_mean(ratios)}"
    )


def _mean(values: "np.ndarray") -> str:
    return f"{values.mean():.2f} ± {values.std(ddof=1) / len(values) ** 0.5:.2f}"
