"""Engine in the planted world, through its public interface: a configuration and a function.

The writer is a local endpoint with OpenAI's protocol. Its calls do not count as evaluations for any
optimizer.
"""

import hashlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from benchmarks.prompts.world import Mock, World, WorldCase
from benchmarks.prompts.writer import Writer
from convergence import run_optimization_sync
from convergence_core.records import Case
from tasks.inputs.cases import split_holdout

N_OF_KIND: Final = 2
"""Cases of each kind in the search; as many again are held out for the final test."""


@contextmanager
def endpoint(answer: Callable[[Any], str]) -> Iterator[str]:
    """Serve a local chat model with OpenAI's protocol.

    Args:
        answer: Maps a request's body to the answer's text.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            message = {"role": "assistant", "content": answer(body)}
            told = {
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
            }
            data = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the library
            """Suppress logging."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@cache
def balanced_cases(world: World) -> tuple[WorldCase, ...]:
    """Return cases with half held out and equal numbers of each kind on both sides."""
    pool = {case.case_id: case for case in world.cases(200)}
    sides = split_holdout([Case(case_id=name, input=name) for name in pool], 0.5)
    return tuple(
        case
        for side in sides
        for kind in world.kinds
        for case in [pool[one.case_id] for one in side if pool[one.case_id].kind == kind][
            :N_OF_KIND
        ]
    )


def configuration(
    folder: Path, world: World, seed: int, n_calls: int, *, endpoint: str
) -> dict[str, Any]:
    """Return a run's configuration."""
    path = Path(__file__).with_name("planted.yaml")
    mapping: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    prompt, optimization = mapping["search_space"]["parameters"]["prompt"], mapping["optimization"]
    prompt |= {"variants": [world.start, world.other_start], "default": world.start}
    mapping["evaluation"]["test_cases"]["inline"] = [
        {"id": c.case_id, "input": {"case": c.case_id, "kind": c.kind}}
        for c in balanced_cases(world)
    ]
    evolution, n_new = optimization["evolution"], mapping["evaluation"]["cases_per_candidate"]
    evolution["population_size"] = max(2, n_calls // (n_new * evolution["generations"]))
    optimization["seed"], mapping["llm"]["endpoint"] = seed, endpoint
    storage, output = {"path": str(folder / "store")}, {"save_path": str(folder / "results")}
    return {**mapping, "storage": storage, "output": output}


def optimize(mock: Mock, seed: int, n_calls: int) -> str:
    """Return a run's recommended prompt.

    Args:
        mock: Mock model of the run.
        seed: Seed of the run.
        n_calls: Maximum evaluations of the search; the final test adds more.
    """
    world = mock.world
    by_id = {case.case_id: case for case in balanced_cases(world)}

    def answer(prompt: str, case: str, kind: str) -> dict[str, Any]:  # noqa: ARG001 - an input
        reply = mock.ask(prompt, by_id[case])
        text = f"{reply.text}; {reply.reason}" if reply.reason else reply.text
        return {"result": text, "metrics": {"score": reply.score}}

    def write(body: Any) -> str:  # the same request gets the same answer
        content = str(body["messages"][-1]["content"])
        digest = hashlib.sha256(f"{seed} {content}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        return Writer(world=world, rng=rng).answer(content)

    with tempfile.TemporaryDirectory() as folder, endpoint(write) as url:
        config = configuration(Path(folder), world, seed, n_calls, endpoint=url)
        result = run_optimization_sync(config, local_function=answer)
        winner = result.result.winner
        assert winner is not None
        return str(winner.params["prompt"])
