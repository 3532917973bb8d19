"""A canary in every place where a secret can stand is found nowhere after real runs.

The server repeats it in answers, errors and headers, in several encodings; the project's own code
puts it into logs, warnings, errors and a thread that dies. Then all that was written is searched.
"""

import base64
import gzip
import html
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from tests.store.postgres_server import PASSWORD, postgres_server
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer
from tests.support.optimizations import ROOT
from tests.support.prefect_server import PrefectServer

CANARY = 'kanarie/7f3a+Q="9x\\z&<-0123456789'
"""Holds what JSON, URLs, HTML and Python's repr each write in their own way."""
MASK = b"[redacted]"
HEADERS = ("authorization", "api-key", "x-api-key", "x-goog-api-key", "x-team")
METRICS = '''
"""Metrics that tell everybody what they should not."""

import itertools
import logging
import os
import threading
import warnings

CALLS = itertools.count()


def told(result, expected, params, metric):
    key = os.environ["CANARY"]
    logging.getLogger("third.party").error("sent %s", {"authorization": key}, stack_info=True)
    warnings.warn(f"odd key {key}")
    thread = threading.Thread(target=lambda: int(key))
    thread.start()
    thread.join()
    return 0.5


def fails(result, expected, params, metric):
    if next(CALLS) % 3:
        return 1.0
    try:
        raise KeyError(os.environ["CANARY"])
    except KeyError as error:
        logging.getLogger("third.party").exception("odd")
        raise ValueError("no worth for " + os.environ["CANARY"]) from error
'''


@dataclass(frozen=True)
class Kind:
    """One place where a secret can stand."""

    api: Mapping[str, Any]
    sections: Mapping[str, Any] = field(default_factory=dict)
    header: str = "authorization"


def _chat(kind: str, **more: Any) -> dict[str, Any]:
    options = {"options": {"model": "m", "max_tokens": 9}}
    return {"kind": kind, "auth": {"token_env": "CANARY"}, "request": options, **more}


def _http(auth: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": "http", **({} if auth is None else {"auth": auth}), **more}


KINDS = {
    "bearer": Kind(_http({"type": "bearer", "token_env": "CANARY"})),
    "basic": Kind(_http({"type": "basic", "username": "me", "password_env": "CANARY"})),
    "header": Kind(_http(request={"headers": {"X-Team": "a ${CANARY}"}}), header="x-team"),
    "openai-stream": Kind(
        _chat("openai", request={"stream": True, "options": {"model": "m", "max_tokens": 9}})
    ),
    "azure": Kind(_chat("azure"), header="api-key"),
    "judge": Kind(_http(), {"judge": True}),
}


def echo(request: Request) -> str:
    """Return what a request carries in the headers that hold secrets."""
    return " ".join(request.headers[name] for name in HEADERS if name in request.headers)


def answer(request: Request, kind: Kind, *, refuses: bool) -> Answer:
    """Repeat the secret in headers and body; refuse all, or only what asks for case c1."""
    said = echo(request)
    text = said if "c2" in json.dumps(request.body) else "fine"  # what is masked is not measured
    again = {"x-echo": said, "www-authenticate": f"Bearer error={said}"}
    torn = [said.upper(), said.lower(), *(said[-n:] for n in range(10, 30)), said[-30:-9]]
    body = {
        "result": said,
        said: [said, base64.b64encode(said.encode()).decode(), urllib.parse.quote(said)],
        "error": {"message": f"wrong key {said}: {json.dumps(said)} {html.escape(said)}"},
        # Wherever this is cut, it is cut through a secret.
        "cut": [f"{said} ! " * 400, " ! ".join(torn), said],
    }
    holds_key = request.path.startswith("/judge") or "judge" not in kind.sections
    if refuses and holds_key:
        return Answer(body, 401, again)
    if "c1" in json.dumps(request.body):
        return Answer(body, 400, again)
    if request.path.startswith("/judge"):
        made = chat_answer(json.dumps({"reason": said, "rating": 7}))
    elif kind.api["kind"] == "http":
        made = Answer(body if text == said else {"result": text})
    else:
        made = chat_answer(text, model=said)
    return Answer(made.body, 200, again)


def write_canary_project(folder: Path, url: str, kind: Kind) -> None:
    """Write a project whose target is at ``url``."""
    folder.mkdir(parents=True)
    (folder / "metrics.py").write_text(METRICS, encoding="utf-8")
    metrics: dict[str, Any] = {
        "told": {"type": "function", "function": "metrics.py:told", "weight": 1},
        "fails": {"type": "function", "function": "metrics.py:fails", "weight": 0},
    }
    if kind.sections.get("judge"):
        metrics["judged"] = {
            "type": "llm_judge",
            "rubric": "Is it good?",
            "weight": 1,
            "llm": {"model": "j", "endpoint": f"{url}/judge", "api_key_env": "CANARY"},
        }
    cases = [{"id": f"c{n}", "input": f"case c{n}", "expected": "x"} for n in range(4)]
    tree: dict[str, Any] = {
        "api": {"name": "canary", "endpoint": url, **kind.api},
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0.0, "max": 1.0}}},
        "evaluation": {"test_cases": {"inline": cases}, "metrics": metrics},
        "optimization": {
            "seed": 1,
            "evolution": {"population_size": 3, "generations": 1},
            "execution": {"parallel_workers": 2, "max_retries": 0},
        },
        **({"storage": kind.sections["storage"]} if "storage" in kind.sections else {}),
    }
    path = folder / "optimization.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")


def optimize(folder: Path, server: PrefectServer, **environ: str) -> tuple[int, str]:
    """Run ``convergence optimize`` as talkative as it can be; return its exit code and output."""
    done = subprocess.run(
        [sys.executable, "-m", "convergence", "--debug", "optimize"],
        cwd=folder,
        env={
            **os.environ,
            **server.environment,
            "PYTHONPATH": str(ROOT),
            "CANARY": CANARY,
            "OPENAI_LOG": "debug",
            "PREFECT_LOGGING_LEVEL": "DEBUG",
            "PREFECT_LOGGING_ROOT_LEVEL": "DEBUG",
            # Not httpx: what sends these logs logs by it, and would never come to an end.
            "PREFECT_LOGGING_EXTRA_LOGGERS": "openai,third.party",
            "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


# -- the search; it knows nothing of how secrets are redacted


def forms_of(secret: str) -> list[bytes]:
    """Return what a secret looks like in files."""
    found = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], html.escape(secret)}
    found |= {json.dumps(text)[1:-1] for text in found}
    quoted = {urllib.parse.quote(secret), urllib.parse.quote_plus(secret)}
    found |= quoted | {text.lower() for text in quoted} | {secret.encode().hex()}
    for before in ("", "1", "12"):
        # Without the characters at the ends, which share their bits with the neighbours.
        text = base64.b64encode((before + secret).encode()).decode()[4:-4]
        found |= {text, text.replace("+", "-").replace("/", "_")}
    found |= {
        case for piece in pieces_of(secret) for case in (piece, piece.upper(), piece.lower())
    }
    return sorted(form.encode() for form in found)


def pieces_of(secret: str) -> set[str]:
    """Return eight characters in a row of the canary; of a URL they would be anybody's words."""
    parts = [] if "://" in secret else [secret[i : i + 8] for i in range(len(secret) - 7)]
    return {part for part in parts if not part.isdigit()}


def contents(path: Path, scratch: Path) -> Iterator[bytes]:
    """Yield what a file holds: its bytes, and what is behind compression and pages."""
    raw = path.read_bytes()
    yield raw
    if raw.startswith(b"\x1f\x8b"):
        yield gzip.decompress(raw)
    if raw.startswith(b"PAR1"):
        with duckdb.connect() as query:
            rows = query.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()
        yield "\n".join(str(value) for row in rows for value in row).encode()
    if raw.startswith(b"SQLite format 3"):
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        for part in path.parent.glob(f"{path.name}*"):
            shutil.copy(part, scratch / part.name)
        with sqlite3.connect(scratch / path.name) as copy:
            copy.text_factory = bytes
            names = copy.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (name,) in names:
                for row in copy.execute(f'SELECT * FROM "{name.decode()}"'):  # noqa: S608
                    for value in row:
                        yield value if isinstance(value, bytes) else str(value).encode()
        copy.close()


def found_in(folder: Path, scratch: Path, words: list[bytes]) -> list[str]:
    """Return each file below a folder in which one of the words stands."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    hits = []
    for path in files:
        for data in contents(path, scratch):
            # Base64 may come in lines, also within JSON.
            joined = data.replace(b"\\n", b"").replace(b"\n", b"")
            hits += [f"{path}: {word!r}" for word in words if word in data or word in joined]
    return hits


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A Prefect server whose home these tests may search."""
    with PrefectServer(tmp_path_factory.mktemp("prefect-home")) as running:
        yield running


def run_both(
    tmp_path: Path, server: PrefectServer, kind: Kind, **environ: str
) -> dict[str, tuple[int, str]]:
    """Run a project that succeeds and one that is refused; return how each ended."""
    ends = {}
    for name, refuses in (("good", False), ("bad", True)):
        with LoopbackServer(lambda r, n=refuses: answer(r, kind, refuses=n)) as target:  # type: ignore[misc]
            write_canary_project(tmp_path / "projects" / name, target.url, kind)
            ends[name] = optimize(tmp_path / "projects" / name, server, **environ)
            (tmp_path / "projects" / f"{name}.out").write_text(ends[name][1], encoding="utf-8")
            asked = [request for request in target.requests if kind.header in request.headers]
            assert asked, f"nothing was asked with a key:\n{ends[name][1][-3000:]}"
            sent = asked[0].headers[kind.header]
            if sent.startswith("Basic "):
                sent = base64.b64decode(sent.removeprefix("Basic ")).decode()
            assert CANARY in sent
    return ends


def assert_silent(tmp_path: Path, server: PrefectServer, secrets: list[str]) -> None:
    """Search project, store, outputs and Prefect's home; the mask must be where secrets were."""
    scratch = tmp_path / "scratch"
    words = [form for secret in secrets for form in forms_of(secret)]
    for folder in (tmp_path / "projects", server.home):
        assert found_in(folder, scratch, words) == []
        assert found_in(folder, scratch, [MASK]), f"nothing of interest reached {folder}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_secret_is_nowhere_after_a_good_and_a_refused_run(
    tmp_path: Path, server: PrefectServer, name: str
):
    ends = run_both(tmp_path, server, KINDS[name])
    assert ends["good"][0] == 0, ends["good"][1][-3000:]
    outlets = ("third.party - sent {'authorization': '[redacted]'}", "odd key [redacted]",
               "base 10: '[redacted]'", "KeyError: '[redacted]'", "(b'x-echo', b'")  # fmt: skip
    for outlet in outlets:
        assert outlet in ends["good"][1], f"nothing came out by {outlet}"
    assert "(b'x-echo', b'" in ends["bad"][1]
    assert_silent(tmp_path, server, [CANARY])


@pytest.mark.slow
def test_the_search_finds_what_it_looks_for(tmp_path: Path):
    scratch = tmp_path / "scratch"
    for number, form in enumerate(forms_of(CANARY)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "text.log").write_bytes(b"before " + form + b" after")
        (folder / "text.gz").write_bytes(gzip.compress(b"before " + form + b" after"))
        with duckdb.connect() as maker:
            maker.execute("CREATE TABLE t AS SELECT ? AS a, 2 AS b", [form.decode()])
            maker.execute(f"COPY t TO '{folder}/table.parquet' (COMPRESSION zstd)")
        with sqlite3.connect(folder / "base.db") as base:
            base.execute("PRAGMA journal_mode = WAL")
            base.execute("CREATE TABLE t(a TEXT)")
            # Longer than a page: its bytes do not lie in one piece.
            base.execute("INSERT INTO t VALUES (?)", ("x" * 4060 + form.decode() + "x" * 9000,))
        hits = found_in(folder, scratch, [form])
        base.close()
        for name in ("text.log", "text.gz", "table.parquet", "base.db"):
            assert any(hit.startswith(str(folder / name)) for hit in hits), (name, form)


@pytest.mark.slow
def test_the_password_of_a_shared_journal_is_nowhere(tmp_path: Path, server: PrefectServer):
    url = postgres_server().new_schema()
    kind = Kind(KINDS["bearer"].api, {"storage": {"journal": "${JOURNAL}"}})
    ends = run_both(tmp_path, server, kind, JOURNAL=url)
    assert ends["good"][0] == 0, ends["good"][1][-3000:]
    assert_silent(tmp_path, server, [CANARY, url, PASSWORD])
