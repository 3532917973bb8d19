"""The engine in the planted world, through its public interface: a configuration and a function.

The writer is an endpoint that speaks OpenAI's protocol on this machine, as any model would; its calls are not
counted as evaluations, for none of the others and none of ours.
"""

import hashlib
import json
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.prompts.world import Mock, World, WorldCase
from benchmarks.prompts.writer import Temper, Writer
from convergence import run_optimization_sync
from convergence_core.records import Case
from tasks.inputs.cases import split_holdout

N_OF_KIND: Final = 2
"""Cases of each kind that the search has, and as many that are held out for the test after it."""
N_GENERATIONS: Final = 25
N_NEW: Final = 4
"""Cases that a new prompt is asked."""


@contextmanager
def writer_endpoint(world: World, seed: int, temper: Temper) -> Iterator[str]:
    """Serve the writer; the same request gets the same answer.

    Args:
        world: of the run.
        seed: of the run.
        temper: how honest it is.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            content = str(body["messages"][-1]["content"])
            digest = hashlib.sha256(f"{seed} {content}".encode()).digest()
            rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
            text = Writer(world=world, rng=rng, temper=temper).answer(content)
            message = {"role": "assistant", "content": text}
            answer = {
                "model": body["model"],
                "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
            }
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the library
            """Say nothing."""

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
    """Return cases of which a half is held out, with as many of each kind on both sides."""
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
    """Return the configuration of a run."""
    listed = balanced_cases(world)
    return {
        "api": {"name": "planted", "kind": "function"},
        "search_space": {
            "parameters": {
                "prompt": {
                    "type": "text",
                    "variants": [world.start, world.other_start],
                    "default": world.start,
                    "mutate": True,
                }
            }
        },
        "evaluation": {
            "cases_per_candidate": N_NEW,
            "test_cases": {
                "holdout": 0.5,
                "inline": [
                    {"id": c.case_id, "input": {"case": c.case_id, "kind": c.kind}} for c in listed
                ],
            },
            "metrics": {"score": {"type": "function", "weight": 1}},
        },
        "optimization": {
            "algorithm": "mab_evolution",
            "seed": seed,
            "evolution": {
                "population_size": max(2, n_calls // (N_NEW * N_GENERATIONS)),
                "generations": N_GENERATIONS,
                "elite_size": 0,
            },
            "execution": {"early_stopping": {"enabled": False}},
        },
        "storage": {"path": str(folder / "store")},
        "output": {"save_path": str(folder / "results")},
        "llm": {"model": "writer", "endpoint": endpoint},
        "prompts": {"n_texts": 2, "max_share_usd": 1.0},
        "prices": {"writer": {"input": 0.0, "output": 0.0}},
    }


def optimize(mock: Mock, seed: int, n_calls: int, temper: Temper = "honest") -> str:
    """Return the prompt that a run recommends.

    Args:
        mock: of the run.
        seed: of the run.
        n_calls: evaluations of the search; the final test makes more.
        temper: of the writer.
    """
    world = mock.world
    by_id = {case.case_id: case for case in balanced_cases(world)}

    def answer(prompt: str, case: str, kind: str) -> dict[str, Any]:  # noqa: ARG001 - an input
        reply = mock.ask(prompt, by_id[case])
        text = f"{reply.text}; {reply.reason}" if reply.reason else reply.text
        return {"result": text, "metrics": {"score": reply.score}}

    with tempfile.TemporaryDirectory() as folder, writer_endpoint(world, seed, temper) as url:
        config = configuration(Path(folder), world, seed, n_calls, endpoint=url)
        result = run_optimization_sync(config, local_function=answer)
        winner = result.result.winner
        assert winner is not None
        return str(winner.params["prompt"])
