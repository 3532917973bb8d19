"""``convergence serve`` as a process: asked for strong tokens, ended by signals, killed."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from convergence.client import Client, ServiceRefusedError
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.rebuilt_counts import rebuilt

TOKEN = secrets.token_urlsafe(32)
ROOT = Path(__file__).parents[2]


@contextmanager
def serving(
    store: Path, *options: str, n_files: int | None = None
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "convergence", "serve", "--token", "BOT_TOKEN", "--port", "0"]
    if n_files is not None:
        command = ["bash", "-c", f'ulimit -n {n_files} && exec "$@"', "bash", *command]
    process = subprocess.Popen(
        [*command, "--store", str(store), "--rate", "0", *options],
        env={**os.environ, "BOT_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "COLUMNS": "400"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + str(process.stderr and process.stderr.read())
        yield process, found[0]
    finally:
        process.kill()
        process.communicate()


def ended(path: Path, *, by: signal.Signals) -> tuple[int, int]:
    """Send a signal while requests come in; return the exit code and what was acknowledged."""
    acknowledged: list[tuple[str, float]] = []
    enough = threading.Event()
    with serving(path) as (process, url):
        with Client(url, token=TOKEN) as client:
            for name in ("a", "b"):
                client.offer("bot", name, {})

        def ask(number: int) -> None:
            with Client(url, token=TOKEN, retries=0) as own:
                try:
                    while True:
                        chosen = own.select("bot", user_id=f"u{number}")
                        reward = len(acknowledged) % 5 / 4
                        told = own.update(
                            "bot", user_id=f"u{number}", decision_id=str(chosen.decision_id),
                            reward=reward,
                        )  # fmt: skip
                        assert told.status == "ok"
                        acknowledged.append((str(chosen.decision_id), reward))
                        if len(acknowledged) > 80:
                            enough.set()
                except ServiceRefusedError:
                    return  # it ended

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        assert enough.wait(120)
        process.send_signal(by)
        for thread in threads:
            thread.join(120)
        code = process.wait(120)
    with RuntimeStore(path) as store:
        group = store.group("bot", "default")
        assert group is not None
        arms = {arm.arm_id: (arm.alpha, arm.beta) for arm in store.arms(group.group_id)}
        assert {
            a: pytest.approx(pair) for a, pair in rebuilt(store, group.group_id).items()
        } == arms
        for decision_id, reward in acknowledged:
            found = store.decision(decision_id)
            assert found is not None
            assert found.reward == reward
        return code, group.n - len(acknowledged)


@pytest.mark.parametrize(
    "by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_a_signal_ends_it_and_loses_nothing(tmp_path: Path, by: signal.Signals):
    code, unheard = ended(tmp_path / "store", by=by)
    assert code == 0
    assert unheard == 0, "every reward that was taken in was acknowledged"


def test_a_kill_loses_no_acknowledged_reward(tmp_path: Path):
    code, unheard = ended(tmp_path / "store", by=signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert 0 <= unheard <= 4, "at most the answers on their way"


class Provider(BaseHTTPRequestHandler):
    """Streams half of an answer, and the rest once it may."""

    may_end: ClassVar[threading.Event]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._send(content="Half ")
        self.may_end.wait(60)
        self._send(content="and half.")
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, **delta: str) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        self.wfile.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - of the base class
        """Write nothing."""


@pytest.mark.slow
@pytest.mark.parametrize("is_finished", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_signal_lets_a_chat_answer_in_flight_end_readably(tmp_path: Path, is_finished: bool):
    import httpx

    Provider.may_end = threading.Event()
    provider = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=provider.serve_forever, daemon=True).start()
    config = tmp_path / "optimization.yaml"
    config.write_text(
        f"api: {{name: t, kind: openai, endpoint: 'http://127.0.0.1:{provider.server_port}/v1',"
        " request: {options: {model: m}}}\n"
        "search_space: {parameters: {temperature: {type: float, min: 0, max: 1, default: 0.5}}}\n"
        "evaluation: {test_cases: [{input: a, expected: b}], metrics: {exact_match: {weight: 1}}}\n"
    )
    body = {"model": "assistant", "messages": [{"role": "user", "content": "Hi?"}], "stream": True}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    lines: list[str] = []
    try:
        with (
            serving(tmp_path / "store", "--chat", "--config", str(config)) as (process, url),
            httpx.stream(
                "POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60
            ) as stream,
        ):
            for line in stream.iter_lines():
                lines.append(line)
                if "Half " in line:
                    process.send_signal(signal.SIGTERM)
                    if is_finished:
                        Provider.may_end.set()
            text = "\n".join(lines)
            assert process.wait(60) == 0
    finally:
        Provider.may_end.set()
        provider.shutdown()
        provider.server_close()
    assert ("and half." in text, "[DONE]" in text) == (is_finished, is_finished), text
    assert ('"error"' in text) != is_finished, text
