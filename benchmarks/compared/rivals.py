"""Prompt optimizers on one small task, with calls counted by their common model server.

    python -m benchmarks.compared.rivals ours=.venv/bin/python gepa=build/gepa/bin/python …

Names: ours, gepa, dspy-gepa, dspy-mipro, capo, opik, each with its environment's Python. Each makes three runs: from a
weak prompt, from a right one, and one killed by SIGKILL after half of the first run's calls and restarted in its
folder. Opik calls its backend on the same server, which answers 404.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
TEMPLATE: Final = ROOT / "convergence/templates/prompt"
WEAK: Final = (TEMPLATE / "prompts/plain.txt").read_text(encoding="utf-8").strip()
WRITTEN: Final = (
    "What is the customer's message about?",
    "Which mood has the message? Choose from angry, happy, neutral or sad.",
    "Say what you think of the message in one word.",
    "Which mood has the message? Answer in one word: angry, happy, neutral or sad.",
)
CASES: Final = [
    (case["input"]["message"], case["expected"])
    for case in json.loads((TEMPLATE / "test_cases.json").read_text(encoding="utf-8"))
][:20]
MOODS: Final = re.compile("angry, happy, neutral (?:or|and) sad")
"""Labels that a right prompt lists."""
N_RESULT: Final = 30
"""Number of final output lines shown, which include the resulting prompt."""
HOSTS: Final = (  # every Python process imports this at startup
    "import os, socket\nreal = socket.getaddrinfo\n"
    "def look_up(host, *rest, **more):\n"
    "    with open(os.environ['HOSTS'], 'a') as file: print(host, file=file)\n"
    "    return real(host, *rest, **more)\n"
    "socket.getaddrinfo = look_up\n"
)


def filled(schema: dict[str, Any], text: str, defined: dict[str, Any]) -> Any:
    """Return a value that fits a JSON schema, with one text for all strings."""
    schema = schema.get("anyOf", [schema])[0]
    if "$ref" in schema:
        schema = defined[schema["$ref"].rpartition("/")[2]]
    kind = schema.get("type")
    if kind == "object":
        inner = schema.get("properties", {})
        return {name: filled(one, text, defined) for name, one in inner.items()}
    if kind == "array":
        return [filled(schema["items"], text, defined)]
    value = {"integer": 1, "number": 1, "boolean": True}.get(kind or "", text)
    choices = schema.get("enum", [schema.get("const", value)])
    return "system" if "system" in choices else choices[0]


class Models:
    """Mock of the task's model and the writer that records requests."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bodies: list[str] = []
        self.n_written = self.n_task = 0
        self.kill_at, self.url = 0, ""
        self.is_time = threading.Event()

    def answer(self, body: dict[str, Any]) -> str:
        """Answer a chat-completion request."""
        texts = [str(message["content"]) for message in body["messages"]]
        with self.lock:
            self.bodies.append(json.dumps(body, sort_keys=True))
            is_task = body["model"].endswith("task")
            self.n_task += is_task
            self.n_written += not is_task
            written = WRITTEN[(self.n_written - 1) % len(WRITTEN)]
            if len(self.bodies) == self.kill_at:
                self.is_time.set()
        if is_task:
            places = [(texts[-1].rfind(message), mood) for message, mood in CASES]
            knows = MOODS.search("\n".join(texts))
            answer = max(places)[1] if knows else "An interesting message."
        else:
            answer = written
        names = re.findall(r"\[\[ ## (\w+) ## \]\]", texts[-1].rpartition("Respond with the")[2])
        if "Respond with the" in texts[-1] and names:  # DSPy's format
            return "\n\n".join(f"[[ ## {name} ## ]]\n{answer}" for name in names)
        fields = texts[-1].rpartition("JSON object in the following order of fields:")[2]
        if fields != texts[-1]:  # another DSPy format
            return json.dumps(dict.fromkeys(re.findall(r"`(\w+)`", fields), answer))
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
        if schema is not None:
            value = filled(schema, answer, schema.get("$defs", {}))
            return json.dumps(value).replace(f'"role": "{answer}"', '"role": "system"')
        return answer if is_task else f"<prompt>{answer}</prompt>\n```\n{answer}\n```"


def serve(models: Models) -> ThreadingHTTPServer:
    """Serve the models on a free port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not self.path.endswith("/chat/completions"):
                return self.send_error(404)
            body = json.loads(content)
            message = {"role": "assistant", "content": models.answer(body)}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            reply = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
            reply["usage"] = {"prompt_tokens": 50, "completion_tokens": 5, "total_tokens": 55}
            sent = json.dumps({**reply, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)
            return None

        def do_GET(self) -> None:
            self.send_error(404)

        do_PUT = do_PATCH = do_GET  # noqa: N815 - the library's names

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of killed clients
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def run(name: str, python: str, folder: Path, start: str, models: Models) -> float:
    """Run an optimizer until it exits or must be killed; return its CPU seconds."""
    (folder / "watch").mkdir(exist_ok=True)
    (folder / "watch/sitecustomize.py").write_text(HOSTS)
    setup = {"start": start, "cases": CASES, "n_calls": 200, "url": f"{models.url}/v1"}
    (folder / "setup.json").write_text(json.dumps(setup))
    environment = os.environ | {
        "PYTHONPATH": f"{folder / 'watch'}:{ROOT}", "HOSTS": str(folder / "hosts"),
        "OPENAI_API_KEY": "none", "OPIK_URL_OVERRIDE": f"{models.url}/api", "OPIK_API_KEY": "none",
        "DSPY_CACHEDIR": str(folder / "dspy"), "HOME": str(folder), "COLUMNS": "100",
    }  # fmt: skip
    with (folder / "printed").open("a") as printed:
        process = subprocess.Popen(
            [python, "-m", "benchmarks.compared.rival_runs", name],
            cwd=folder, env=environment, stdout=printed, stderr=printed, start_new_session=True,
        )  # fmt: skip
        used: list[float] = []

        def wait() -> None:
            usage = os.wait4(process.pid, 0)[2]
            used.append(usage.ru_utime + usage.ru_stime)
            models.is_time.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        models.is_time.wait(900)
        if not used:
            os.killpg(process.pid, 9)
        waiter.join()
    models.is_time.clear()
    return used[0]


def measure(name: str, python: str) -> None:
    """Print the calls of an optimizer's three runs, and its requirements."""
    n_half = 0
    for kind, start in (("weak", WEAK), ("perfect", WRITTEN[-1]), ("killed", WEAK)):
        models, folder = Models(), Path(tempfile.mkdtemp())
        server = serve(models)  # survives the kill
        models.url = f"http://127.0.0.1:{server.server_address[1]}"
        models.kill_at = n_half if kind == "killed" else 0
        cpu_s = run(name, python, folder, start, models)
        before = list(models.bodies)
        if models.kill_at:
            models.kill_at = 0
            cpu_s += run(name, python, folder, start, models)
        n_half = n_half or len(models.bodies) // 2
        after = models.bodies[len(before) :]
        (folder / "hosts").open("a").close()
        hosts = {*(folder / "hosts").read_text().split()} - {"127.0.0.1"}
        lines = (folder / "printed").read_text(errors="replace").splitlines()
        is_right = MOODS.search("\n".join(lines[-N_RESULT:])) is not None
        print(
            f"{name:10} {kind:8} {models.n_task:4} task {models.n_written:3} writer, "
            f"{len(models.bodies) - len({*models.bodies}):4} repeats, "
            f"{sum(body in {*before} for body in after):4} paid again of {len(after)} after the kill, "
            f"{'right' if is_right else 'wrong'} prompt, "
            f"{cpu_s:6.2f} CPU s, {len(lines):5} lines, looked up: {', '.join(sorted(hosts)) or 'none'}",
        )
        server.shutdown()
        shutil.rmtree(folder)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        measure(*argument.split("="))
