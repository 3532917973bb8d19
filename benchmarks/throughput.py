"""Calls per second through a session with a journal, against a bare client with the same requests.

    python -m benchmarks.throughput --rounds 5 --cells 1000

A server in a separate process answers immediately. ``kind: http`` runs against a loop of workers on
one ``httpx.AsyncClient``, ``kind: openai`` against one on one ``openai.AsyncOpenAI``. Both sides
send the same requests to the same server over as many connections. The session claims each call in
the journal before making it, and writes the answer to disk before returning it. The bare loop
stores nothing. The measurement includes slow disk syncs.

Each round measures both sides, in alternating order, after warming each up for longer than idle
connections live.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from benchmarks.answering import response, serve, serving
from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from convergence_core.budget.limits import Budget
from convergence_core.config.models import BudgetConfig
from convergence_core.objective import RewardModel
from convergence_core.records import Assignment, Candidate, Case, Cell, Params
from tasks.calls.dispatcher import Workload
from tasks.calls.paid_calls import CallLimits
from tasks.calls.pending_calls import RunContext
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import Loaded, load_mapping
from tasks.store.journal.sqlite_journal import open_journal

WORKERS = 64
WARM_S = 6.0
"""Warm-up seconds, longer than httpx keeps an idle connection."""
N_WARM = 320
"""Calls between clock checks during warm-up."""
N_CANDIDATES = 20
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
    """Answer immediately by path."""
    return (_CHAT if b"/chat/completions " in head else _RESULT), 0.0


# -- the requests


def configuration(kind: str, url: str) -> dict[str, Any]:
    """Return the configuration of the target system."""
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
    """Return candidates, each with new cases."""
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
    """Session with a fresh journal, as in a run."""

    def __init__(self, kind: str, url: str, folder: Path) -> None:
        self._loaded: Loaded = load_mapping(configuration(kind, url), folder)
        self._world = Environment.of(self._loaded.configuration)
        self._cases: dict[str, Case] = {}
        self._journal = open_journal(folder)
        config = self._loaded.configuration
        self._session = EvaluationSession(
            context=RunContext(
                run_id="R",
                cache=config.cache,
                payer=("R", 0),
                redact=self._world.redactor(config),
                keep_text=True,
            ),
            workload=Workload(
                target=make_target(self._loaded, self._world),
                timeout_s=config.api.request.timeout_seconds,
                metrics=make_metrics(self._loaded, self._world),
                rewards=RewardModel(config.evaluation.metrics),
                cases=self._cases,
            ),
            limits=CallLimits(workers=WORKERS, max_retries=0),
            journal=self._journal,
            budget=Budget(BudgetConfig()),
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
        """Close the session."""
        self._session.close()
        self._journal.close()


class Bare:
    """Workers on one client that send the same requests and store nothing."""

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


Pace = tuple[float, float]
"""Calls per second, and this process's CPU ms per call; the server runs in another process."""


class Stretches:
    """Drives the sides and numbers their cases consecutively, so that no case repeats."""

    def __init__(self) -> None:
        self._n_cells = 0

    def pace(self, side: Ours | Bare, n_cells: int) -> Pace:
        """Make new calls and return their pace."""
        asked = questions(n_cells, first=self._n_cells)
        self._n_cells += n_cells
        n_calls = sum(len(cases) for _, cases in asked)
        began_s = time.process_time()
        seconds = side.ask(asked)
        return n_calls / seconds, (time.process_time() - began_s) / n_calls * 1000.0


def measure(kind: str, *, n_cells: int, rounds: int) -> list[tuple[Pace, Pace]]:
    """Return both sides' paces in each round."""
    paces: list[tuple[Pace, Pace]] = []
    with (
        serving("benchmarks.throughput", ("serve",)) as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        ours, bare = Ours(kind, url, Path(folder)), Bare(kind, url)
        sides: list[Ours | Bare] = [ours, bare]
        stretches = Stretches()
        for _ in range(rounds):
            found: dict[Ours | Bare, Pace] = {}
            for side in sides:
                began = time.monotonic()
                while time.monotonic() < began + WARM_S:
                    stretches.pace(side, N_WARM)
                found[side] = stretches.pace(side, n_cells)
            paces.append((found[ours], found[bare]))
            sides.reverse()
        ours.close()
        bare.close()
    return paces


def main() -> None:
    """Measure each kind and print medians over rounds."""
    args = options(__doc__, rounds=5, cells=2000)
    print(f"{describe_machine()}; concurrency {WORKERS}, {args.cells} calls a round")
    names = ("", "session, calls/s", "bare", "share", "rounds", "session, CPU ms a call", "bare")
    print(header(*names))
    for kind, client in (("http", "httpx.AsyncClient"), ("openai", "openai.AsyncOpenAI")):
        paces = measure(kind, n_cells=args.cells, rounds=args.rounds)
        shares = [mine[0] / theirs[0] for mine, theirs in paces]
        (rate, cpu), (bare_rate, bare_cpu) = (
            [statistics.median(pair[side][at] for pair in paces) for at in (0, 1)]
            for side in (0, 1)
        )
        cells = (f"`{kind}` beside `{client}`", f"{rate:.0f}", f"{bare_rate:.0f}")
        spread = f"{min(shares):.0%} to {max(shares):.0%}"
        share = f"{statistics.median(shares):.0%}"
        print(row(*cells, share, spread, f"{cpu:.2f}", f"{bare_cpu:.2f}"), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve(by_path))
    else:
        main()
