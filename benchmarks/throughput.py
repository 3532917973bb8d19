"""Calls per second through a session, journal on, beside a bare client making the same requests.

    python -m benchmarks.throughput [--kind http|openai] [--rounds 5] [--cells 2000]

A server in a process of its own answers at once. ``kind: http`` runs against a loop of workers on
one ``httpx.AsyncClient``, ``kind: openai`` against one on one ``openai.AsyncOpenAI``. Both sides
send the same requests to the same server over as many connections. The session claims each call in
the journal before it makes it and has the answer on disk before anybody sees it; the bare loop
keeps nothing. A disk that is slow to sync is part of the measurement.

Each round measures both sides, in alternating order, each of them twice: *cold*, with connections
that expired while the other side ran, and *warm*, once it has run for longer than an idle
connection is kept. httpx looks through idle connections again and again, so a burst that opens
more than are needed makes it slow until those have expired; the shares are told for both.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.answering import response, serve, serving
from benchmarks.machine import describe_machine
from convergence_core.budget.limits import Budget
from convergence_core.budget.terms import Limits
from convergence_core.objective.reward import RewardModel
from convergence_core.records import Assignment, Candidate, Case, Cell, Params
from tasks.calls.call_keys import Epoch
from tasks.calls.dispatcher import Workload
from tasks.calls.paid_calls import CallLimits
from tasks.calls.session import EvaluationSession, RunContext
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import Loaded, load_mapping
from tasks.store import open_journal

WORKERS = 64
WARM_S = 6.0
"""Longer than httpx keeps an idle connection."""
N_WARM = 320
"""Calls between two looks at the clock while a side warms up."""
N_CANDIDATES = 20
GOAL = 0.6
"""Share of the bare client's rate that a session is to reach."""
PROMPT = "You sort messages by their mood. Answer with one word: happy, angry or neutral."

Ask = Callable[[Params, Case], Awaitable[Any]]


# -- the server


_RESULT = response({"result": "happy", "success": True, "confidence": 0.9})
_CHAT = response(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-4o-mini",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "logprobs": None,
                "message": {"role": "assistant", "content": "happy", "refusal": None},
            }
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 1, "total_tokens": 41},
    }
)


def by_path(head: bytes) -> tuple[bytes, float]:
    """Answer at once, by the path alone."""
    return (_CHAT if b"/chat/completions " in head else _RESULT), 0.0


def running_server() -> AbstractContextManager[str]:
    """Run the server in a process of its own; return its URL."""
    return serving("benchmarks.throughput", ("--serve",))


# -- what is asked


def configuration(kind: str, url: str) -> dict[str, Any]:
    """Return the configuration of the system that is asked."""
    api: dict[str, Any] = {"name": "mood", "kind": kind, "endpoint": f"{url}/mood"}
    if kind == "openai":
        messages = [
            {"role": "system", "content": PROMPT},
            {"role": "user", "content": "{input.message}"},
        ]
        options = {"model": "gpt-4o-mini", "max_tokens": 16}
        api |= {"endpoint": f"{url}/v1", "request": {"messages": messages, "options": options}}
    return {
        "api": api,
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0.0, "max": 1.0}}},
        "evaluation": {
            "test_cases": {
                "inline": [{"id": "c", "input": {"message": "m"}, "expected": "happy"}]
            },
            "metrics": {"right": {"type": "exact_match", "weight": 1}},
        },
        "optimization": {"execution": {"parallel_workers": WORKERS}},
    }


def questions(n_cells: int, first: int) -> list[tuple[Candidate, list[Case]]]:
    """Return candidates and the cases that each of them is asked, none of them asked before."""
    n_cases = n_cells // N_CANDIDATES
    cases = [
        Case(
            case_id=f"c{first + n:06d}",
            input={"message": f"Where is order {first + n}? It should have come a week ago."},
            expected="happy",
        )
        for n in range(n_cases)
    ]
    return [
        (Candidate(candidate_id=f"{number:016d}", params={"temperature": number / 32}), cases)
        for number in range(N_CANDIDATES)
    ]


# -- the two sides


class Ours:
    """A session on a journal of its own, as a run has it."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self._loaded: Loaded = load_mapping(configuration(kind, url), folder)
        self._world = Environment.of(self._loaded.configuration)
        self._cases: dict[str, Case] = {}
        self._journal = open_journal(folder)
        config = self._loaded.configuration
        self._session = EvaluationSession(
            context=RunContext(
                run_id="R",
                epoch=Epoch(run_id="R", cache=config.cache, run_started_us=0),
                redact=self._world.redactor(config),
                keep_text=True,
            ),
            workload=Workload(
                target=make_target(self._loaded, self._world),
                timeout_s=config.api.request.timeout_seconds,
                metrics=make_metrics(self._loaded, self._world),
                rewards=RewardModel.from_config(config.evaluation.metrics),
                cases=self._cases,
            ),
            limits=CallLimits(workers=WORKERS, max_retries=0),
            journal=self._journal,
            budget=Budget(Limits()),
        )

    def ask(self, asked: Sequence[tuple[Candidate, list[Case]]]) -> float:
        """Ask everything; return the seconds that took."""
        self._cases |= {case.case_id: case for _, cases in asked for case in cases}
        assignments = [
            Assignment(
                candidate=candidate,
                cells=tuple(
                    Cell(candidate_id=candidate.candidate_id, case_id=case.case_id)
                    for case in cases
                ),
            )
            for candidate, cases in asked
        ]
        began = time.perf_counter()
        with ThreadPoolExecutor(len(assignments)) as threads:
            trials = [*threads.map(lambda one: self._session.evaluate(one, 0), assignments)]
        seconds = time.perf_counter() - began
        rewards = {evaluation.reward for trial in trials for evaluation in trial.evaluations}
        if rewards != {1.0}:
            raise RuntimeError(f"not all calls were answered: {rewards}")
        return seconds

    def close(self) -> None:
        """End the session."""
        self._session.close()
        self._journal.close()


class Bare:
    """Workers on one client that send the same requests, and keep nothing."""

    def __init__(self, kind: str, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._client: Any
        if kind == "http":
            limits = httpx.Limits(max_connections=WORKERS, max_keepalive_connections=WORKERS)
            self._client = httpx.AsyncClient(timeout=30.0, limits=limits)
            self._ask: Ask = self._ask_http
        else:
            import openai  # noqa: PLC0415 - takes half a second

            self._client = openai.AsyncOpenAI(
                base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=30.0
            )
            self._ask = self._ask_openai
        self._url = f"{url}/mood"

    def ask(self, asked: Sequence[tuple[Candidate, list[Case]]]) -> float:
        """Ask everything; return the seconds that took."""
        began = time.perf_counter()
        answers = self._loop.run_until_complete(self._ask_all(asked))
        seconds = time.perf_counter() - began
        if set(answers) != {"happy"}:
            raise RuntimeError(f"not all calls were answered: {set(answers)}")
        return seconds

    def close(self) -> None:
        """Close the connections."""
        closing = self._client.aclose if hasattr(self._client, "aclose") else self._client.close
        self._loop.run_until_complete(closing())
        self._loop.close()

    async def _ask_all(self, asked: Sequence[tuple[Candidate, list[Case]]]) -> list[str]:
        waiting = [(candidate.params, case) for candidate, cases in asked for case in cases]
        waiting.reverse()
        answers: list[str] = []

        async def work() -> None:
            while waiting:
                answers.append(await self._ask(*waiting.pop()))

        await asyncio.gather(*(work() for _ in range(WORKERS)))
        return answers

    async def _ask_http(self, params: Params, case: Case) -> Any:
        assert isinstance(case.input, dict)
        response = await self._client.post(self._url, json={**case.input, **params})
        response.raise_for_status()
        return response.json()["result"]

    async def _ask_openai(self, params: Params, case: Case) -> Any:
        assert isinstance(case.input, dict)
        completion = await self._client.chat.completions.create(
            model="gpt-4o-mini",
            messages=[
                {"role": "system", "content": PROMPT},
                {"role": "user", "content": case.input["message"]},
            ],
            max_tokens=16,
            temperature=params["temperature"],
        )
        return completion.choices[0].message.content


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast calls were made."""

    per_s: float
    cpu_ms: float
    """Of this process, for each call; the server has one of its own."""


class Stretches:
    """Lets sides make calls; numbers their cases on and on, so that nothing is asked twice."""

    def __init__(self) -> None:
        self._n_cells = 0

    def pace(self, side: Ours | Bare, n_cells: int) -> Pace:
        """Make so many calls that were never made before."""
        asked = questions(n_cells, first=self._n_cells)
        self._n_cells += n_cells
        n_calls = sum(len(cases) for _, cases in asked)
        began_s = time.process_time()
        seconds = side.ask(asked)
        cpu_s = time.process_time() - began_s
        return Pace(n_calls / seconds, cpu_s / n_calls * 1000.0)


Pairs = list[tuple[Pace, Pace]]
"""Ours and the bare client's, by round."""


def measure(kind: str, *, n_cells: int, rounds: int) -> None:
    """Measure both sides and print them."""
    cold: Pairs = []
    warm: Pairs = []
    with running_server() as url, tempfile.TemporaryDirectory() as folder:
        ours, bare = Ours(kind, url, Path(folder)), Bare(kind, url)
        sides: list[Ours | Bare] = [ours, bare]
        stretches = Stretches()
        for side in sides:
            stretches.pace(side, N_WARM)  # what is imported or opened once
        for _ in range(rounds):
            found: dict[Ours | Bare, tuple[Pace, Pace]] = {}
            for side in sides:
                began = time.monotonic()
                first = stretches.pace(side, n_cells)
                while time.monotonic() < began + WARM_S:
                    stretches.pace(side, N_WARM)
                found[side] = (first, stretches.pace(side, n_cells))
            cold.append((found[ours][0], found[bare][0]))
            warm.append((found[ours][1], found[bare][1]))
            sides.reverse()
        ours.close()
        bare.close()
    client = "httpx.AsyncClient" if kind == "http" else "openai.AsyncOpenAI"
    print(f"kind: {kind} beside a bare {client}")
    tell("warm", warm)
    tell("cold", cold)


def tell(name: str, pairs: Pairs) -> None:
    """Print medians over rounds."""
    shares = [mine.per_s / theirs.per_s for mine, theirs in pairs]
    per_s = [statistics.median(pair[side].per_s for pair in pairs) for side in (0, 1)]
    cpu_ms = [statistics.median(pair[side].cpu_ms for pair in pairs) for side in (0, 1)]
    listed = ", ".join(f"{share:.0%}" for share in shares)
    print(
        f"  {name}: {per_s[0]:.0f} calls/s beside {per_s[1]:.0f}, "
        f"CPU {cpu_ms[0]:.2f} ms a call beside {cpu_ms[1]:.2f}\n"
        f"        share {statistics.median(shares):.0%}, goal at least {GOAL:.0%} "
        f"(rounds: {listed})"
    )


def main() -> None:
    """Measure each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=["http", "openai"], help="one of the two")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(by_path))
        return
    print(f"{describe_machine()}; concurrency {WORKERS}, {options.cells} calls a round")
    for kind in ["http", "openai"] if options.kind is None else [options.kind]:
        measure(kind, n_cells=options.cells, rounds=options.rounds)


if __name__ == "__main__":
    main()
