"""Prompts for a small real model: SmolLM2-135M answers, and the writer replays a large model's replies.

    pip install --target build/gepa-alone --no-deps gepa==0.1.4
    PYTHONPATH=build/gepa-alone python -m benchmarks.prompts.real

Two tasks of the template ``local-llm``: whether a sentence is positive or negative, and which city it names. Every
method searches the same ``N_TRAIN`` cases; the others test its recommended prompt. An answer scores the mean of the
template's metrics: 1 if it is the expected word, .5 if it contains it. Ours holds out a third of its cases, and its
calls include the final test. The blind climb requests ``N_BLIND`` prompts at a time and shows no case. *Drawn* is the
start with ``N_DRAWN`` random cases as demonstrations.

``real`` stores both models' answers by message, so a replay needs neither model unless the engine or its requests
change. ``--ask FOLDER`` runs everything in parallel, calls SmolLM2 (extra ``local``), and writes each writer request
without a reply to ``KEY.txt``; you answer in ``KEY.reply`` next to it. The replier of 2026-11 saw only requests, but
also wrote this benchmark, saw outcomes while replying, and wrote the replies of all methods side by side.
"""

import hashlib
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import yaml

from benchmarks.machine import describe_machine, options
from benchmarks.prompts.hill_climb import climb
from benchmarks.prompts.ours import endpoint
from benchmarks.prompts.rivals import gepa
from benchmarks.prompts.world import WorldAnswer
from benchmarks.tables import header, row, with_error
from convergence import run_optimization_sync
from convergence.templates import plan_files
from convergence_core.config import parse_mapping
from convergence_core.prompts.operators import read_answers
from convergence_core.prompts.shots import Shot, joined, split
from tasks.metrics.comparisons import comparison
from tasks.models.files import LOCAL_MODELS, PACKAGED, find_model
from tasks.models.requests import ChatRequest

N_TRAIN: Final = 24
N_CALLS: Final = 120
N_VALIDATION: Final = 6
N_BLIND: Final = 4
N_DRAWN: Final = 4
TASKS: Final = {"sentiment": "optimization.yaml", "city": "city.yaml"}
WAYS: Final = ("start", "drawn", "ours", "gepa", "blind")
FOLDER: Final = Path(__file__).with_name("real")
SCORING: Final = "Half of the score: the whole answer is the expected word; half: it contains it."
BLIND: Final = """You improve prompts of a language model of 135 million parameters, which answers with at most {limit} \
tokens. Its task: {task} The prompt is its system message; the user message is

{user}

{scoring} Write {n} different new prompts that may do better than this one, each between <prompt> and </prompt>:

<prompt>{prompt}</prompt>

These were tried before:
{tried}"""
Messages = Sequence[Mapping[str, str]]


class Case(NamedTuple):
    """A sentence, its user message and the expected word."""

    case_id: str
    text: str
    message: str
    expected: str


class Task:
    """A template's task and one run's model, with the interface of a planted world and its mock."""

    def __init__(self, name: str, seed: int, model: "Record") -> None:
        files = {str(path): text for path, text in plan_files("local-llm").items()}
        self.world, self.model, self.n_calls = self, model, 0
        self.mapping = yaml.safe_load(files[TASKS[name]])
        evaluation, request = self.mapping["evaluation"], self.mapping["api"]["request"]
        prompt = self.mapping["search_space"]["parameters"]["prompt"]
        prompt["variants"] = [files[path] for path in prompt["variants"]]
        self.start = prompt["default"] = prompt["variants"][0]
        self.user, self.limit = (
            request["messages"][-1]["content"],
            request["options"]["max_tokens"],
        )
        rows = json.loads(files[evaluation["test_cases"]["path"]])
        rows = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
        listed = [
            Case(r["id"], t := r["input"]["text"], self.asked(t), r["expected"]) for r in rows
        ]
        shuffled = np.random.default_rng([seed, 4]).permutation(N_TRAIN)
        self.train, self.test = [listed[i] for i in shuffled], listed[N_TRAIN:]
        evaluation["test_cases"] = {"holdout": 0.33, "inline": rows[:N_TRAIN]}
        evaluation["metrics"]["named"]["weight"] = 1
        metrics: Any = parse_mapping(self.mapping).evaluation.metrics
        self.metrics = [comparison(metric) for metric in metrics.values()]

    def asked(self, sentence: str) -> str:
        """Return a sentence's user message."""
        return str(self.user).replace("{input.text}", sentence)

    def cases(self, n: int) -> list[Case]:
        """Return at most n search cases."""
        return self.train[:n]

    def ask_all(self, text: str, cases: Sequence[Case]) -> list[WorldAnswer]:
        """Answer cases as one batch."""
        self.n_calls += len(cases)
        with ThreadPoolExecutor(len(cases)) as pool:
            return [*pool.map(lambda case: self.ask(text, case), cases)]

    def ask(self, text: str, case: Case) -> WorldAnswer:
        """Answer one case as the engine does, with demonstrations as turns. The call is not counted."""
        instruction, shots = split(text)
        messages = [{"role": "system", "content": instruction}]
        for shot in shots:
            shown: Any = shot.input({})
            if shown["text"] != case.text:
                messages.append({"role": "user", "content": self.asked(shown["text"])})
                messages.append({"role": "assistant", "content": shot.assistant})
        messages.append({"role": "user", "content": case.message})
        answer = self.model.answer(messages, self.limit)
        score = float(np.mean([metric(answer, case.expected) for metric in self.metrics]))
        reason = (
            f"The expected word is `{case.expected}`. {SCORING} The assistant is a language model of 135 million "
            f"parameters, and its answer ends after {self.limit} tokens."
        )
        return WorldAnswer(score, answer, "" if score == 1 else reason)


class Record:
    """File of a model's answers by message."""

    def __init__(self, name: str, ask: Callable[[str, Messages, int], str] | None) -> None:
        self._path, self._ask, self._lock = FOLDER / f"{name}.jsonl", ask, threading.Lock()
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        self.known = dict(map(json.loads, lines))

    def answer(self, messages: Messages, max_tokens: int = 0) -> str:
        """Return the answer to messages, and store it if new.

        Raises:
            LookupError: If no answer is recorded and there is no model.
        """
        text = json.dumps([[m["role"], m["content"]] for m in messages])
        key = hashlib.sha256(text.encode()).hexdigest()[:12]
        if key not in self.known:
            if self._ask is None:
                raise LookupError(f"{self._path.name} has no answer {key}; run with --ask FOLDER")
            answer = self._ask(key, messages, max_tokens)
            with self._lock, self._path.open("a", encoding="utf-8") as file:
                if self.known.setdefault(key, answer) is answer:
                    file.write(json.dumps([key, answer], ensure_ascii=False) + "\n")
        return str(self.known[key])


def optimize(task: Task, seed: int, answer: Callable[[Any], str]) -> str:
    """Return the engine's recommended prompt.

    Args:
        task: Task of the run.
        seed: Seed of the run.
        answer: Maps a request's body to the answer's text.
    """
    api, optimization = task.mapping["api"], task.mapping["optimization"]
    with tempfile.TemporaryDirectory() as folder, endpoint(answer) as url:
        api |= {"kind": "openai", "endpoint": f"{url}/chat/completions", "auth": {"type": "none"}}
        api["request"]["timeout_seconds"] = 3600
        optimization["seed"] = seed
        optimization["evolution"] = {"population_size": 4, "generations": 6, "elite_size": 0}
        optimization["execution"]["early_stopping"] = {"enabled": False}
        task.mapping["evaluation"]["cases_per_candidate"] = 4
        task.mapping |= {
            "storage": {"path": f"{folder}/store"},
            "output": {"save_path": f"{folder}/results"},
            "llm": {"model": "writer", "endpoint": url, "timeout_seconds": 3600},
            "prompts": {"n_texts": 4, "max_share_usd": 1.0},
            "prices": {"writer": {"input": 0.0, "output": 0.0}},
        }
        winner = run_optimization_sync(task.mapping).result.winner
        assert winner is not None
        return str(winner.params["prompt"])


def blind_edits(task: Task, writer: Record) -> Callable[[str, str], str]:
    """Return an editor that sees no case and returns one reply's prompts in turn."""
    ready: dict[str, list[str]] = {}
    tried: dict[str, list[str]] = {}

    def edit(text: str, _shown: str) -> str:
        if not ready.get(text):
            request = BLIND.format(
                limit=task.limit, task=task.mapping["api"]["description"], scoring=SCORING,
                user=task.asked("..."), n=N_BLIND, prompt=text,
                tried="\n".join(f"- {prompt}" for prompt in tried.get(text, ())) or "none",
            )  # fmt: skip
            reply = writer.answer([{"role": "user", "content": request}])
            ready[text] = [a.text for a in read_answers(reply, N_BLIND) if a.text]
            tried.setdefault(text, []).extend(ready[text])
        return ready[text].pop(0)

    return edit


def play(key: tuple[str, str, int], model: Record, writer: Record) -> tuple[float, float, int]:
    """Return a method's held-out score, share of exact answers and number of calls."""
    name, way, seed = key
    task = Task(name, seed, model)

    def of_body(body: Any) -> str:
        if body["model"] == "writer":
            return writer.answer(body["messages"])
        task.n_calls += 1
        return model.answer(body["messages"], task.limit)

    def reflect(prompt: Any) -> str:
        return writer.answer([{"role": "user", "content": str(prompt)}])

    text = task.start
    if way == "ours":
        text = optimize(task, seed, of_body)
    elif way == "gepa":
        text = gepa(task, seed, N_CALLS, N_VALIDATION, reflect)
    elif way == "drawn":
        drawn = [Shot(user=json.dumps({"text": c.text}), assistant=c.expected) for c in task.train]
        text = joined(task.start, drawn[:N_DRAWN])
    elif way == "blind":
        text = climb(task, np.random.default_rng([seed, 1]), N_CALLS, blind_edits(task, writer))
    n_calls = task.n_calls
    scores = np.array([answer.score for answer in task.ask_all(text, task.test)])
    print(f"{key}: {scores.mean():.3f}, {n_calls} calls\n{text}\n", flush=True)
    return float(scores.mean()), float((scores == 1).mean()), n_calls


@cache
def _smollm() -> Any:
    return LOCAL_MODELS.open(find_model(PACKAGED, Path(), key="model"))


def of_smollm(_key: str, messages: Messages, max_tokens: int) -> str:
    """Return SmolLM2's answer at temperature 0."""
    request = ChatRequest(messages=tuple(map(dict, messages)), max_tokens=max_tokens)
    return str(_smollm().ask(request, 600.0, None).result().text)


def by_hand(folder: Path, key: str, messages: Messages, _max_tokens: int) -> str:
    """Write a request to a file and return the reply once someone has written it."""
    path, reply = folder / f"{key}.txt", folder / f"{key}.reply"
    path.write_text("\n\n".join(message["content"] for message in messages), encoding="utf-8")
    while not reply.exists():
        time.sleep(0.3)
    return reply.read_text("utf-8").strip()


def main() -> None:
    """Run every method on every task and print the table."""
    args = options(__doc__, seeds=3, ask="", ways=WAYS)
    print(describe_machine(), flush=True)
    keys = [*product(TASKS, args.ways, range(args.seeds))]
    model = Record("answers", of_smollm if args.ask else None)
    writer = Record("replies", partial(by_hand, Path(args.ask)) if args.ask else None)
    with ThreadPoolExecutor(len(keys) if args.ask else 1) as pool:
        results = dict(
            zip(keys, pool.map(lambda key: play(key, model, writer), keys), strict=True)
        )
    print(
        header("", *(f"{task}, {what}" for task in TASKS for what in ("score", "exact", "calls")))
    )
    for way in args.ways:
        cells = []
        for task in TASKS:
            score, exact, n_calls = np.array([results[task, way, s] for s in range(args.seeds)]).T
            cells += [with_error(score), f"{exact.mean():.3f}", f"{n_calls.mean():.0f}"]
        print(row(way, *cells))
    print(f"{len(writer.known)} replies")


if __name__ == "__main__":
    main()
