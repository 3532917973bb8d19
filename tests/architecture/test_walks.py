"""Walks of docs/architecture.md, watched, and the answers of CONTRIBUTING.md."""

import ast
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import pytest

from convergence.__main__ import run
from convergence.client import Client
from convergence.service.server import Service, ServiceOptions
from convergence.service.tokens import read_tokens
from docs.import_graph import ROOT
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.http_server import Answer, LoopbackServer, Request
from tests.support.thinking_server import ThinkingWorld, thinking_server
from tests.support.thoughtful_runs import SETTING, truth, write_thoughtful

MOST_STOPS = 20
MOST_FILES = 25
STOP = re.compile(r"^( *)- `([\w/]+\.py)` `([\w.]+)`: \S", re.MULTILINE)


@dataclass(frozen=True)
class Stop:
    file: str
    function: str
    depth: int
    caller: "Stop | None"

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.function


def walks() -> dict[str, list[Stop]]:
    """Return title → stops, each with the nearest one above that is indented less."""
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    section = page.split("## Four walks")[1].split("\n## ")[0]
    found: dict[str, list[Stop]] = {}
    for title, text in re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", section, re.M | re.S):
        above: list[Stop] = []
        stops = []
        for indent, file, function in STOP.findall(text):
            depth = len(indent) // 2
            caller = above[depth - 1] if depth else None
            stop = Stop(file, function, depth, caller)
            above[depth:] = [stop]
            stops.append(stop)
        assert len(stops) == text.count("\n- ") + len(re.findall(r"^ +- ", text, re.M)), title
        found[title] = stops
    return found


WALKS = walks()


@dataclass
class Trace:
    """Calls of the stops, with the stops that were on the stack."""

    known: frozenset[tuple[str, str]]
    keys: dict[int, tuple[CodeType, tuple[str, str] | None]] = field(default_factory=dict)
    """The stop of each code object that was called, if it is one; by id, which is fast to look up."""
    first: list[tuple[str, str]] = field(default_factory=list)
    """Stops in the order of their first calls."""
    callers: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=dict)

    def key(self, frame: FrameType) -> tuple[str, str] | None:
        code = frame.f_code
        seen = self.keys.get(id(code))
        if seen is None:
            key = code.co_filename.removeprefix(f"{ROOT}/"), code.co_qualname
            seen = self.keys[id(code)] = code, key if key in self.known else None
        return seen[1]

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        key = self.key(frame)
        if key is None:
            return
        if key not in self.callers:
            self.callers[key] = set()
            self.first.append(key)
        above = frame.f_back
        while above is not None:
            caller = self.key(above)
            if caller is not None:
                self.callers[key].add(caller)
            above = above.f_back


@contextmanager
def traced(*titles: str) -> Iterator[Trace]:
    trace = Trace(frozenset(stop.key for title in titles for stop in WALKS[title]))
    before = sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        yield trace
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


CANDIDATE, REWARD, THOUGHT, REQUEST = WALKS


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory: pytest.TempPathFactory, prefect_server: str) -> Trace:
    """Trace a small optimization of an HTTP endpoint, with thoughts."""
    folder = tmp_path_factory.mktemp("walks")

    def answer(request: Request) -> Answer:
        return Answer({"value": truth(request.body)})

    world = ThinkingWorld(truth, "good", SETTING)
    with LoopbackServer(answer) as target, thinking_server(world) as thinker:
        path = write_thoughtful(
            folder,
            thinker.url,
            api={
                "name": "walked",
                "kind": "http",
                "endpoint": target.url,
                "request": {"method": "POST", "body": {"x": "{x}", "kind": "{kind}"}},
                "response": {"result_field": "value"},
            },
            optimization__evolution={"population_size": 6, "generations": 2},
            storage={"path": str(folder / "store")},
            output={"save_path": str(folder / "results")},
        )
        with traced(CANDIDATE, REWARD, THOUGHT) as trace:
            assert run(["optimize", str(path), "--quiet"]) == 0
    return trace


@pytest.fixture(scope="module")
def of_a_request(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Trace a selection and its reward over HTTP."""
    token = secrets.token_urlsafe(32)
    tokens = read_tokens(["TOKEN"], {"TOKEN": token})
    with (
        traced(REQUEST) as trace,
        RuntimeStore(tmp_path_factory.mktemp("walks")) as store,
        Service(store, tokens, ServiceOptions(port=0)) as service,
        Client(service.url, token=token) as client,
    ):
        for arm_id in ("a", "b"):
            client.offer("walked", arm_id, params={"k": arm_id})
        chosen = client.select("walked", user_id="u")
        assert chosen.decision_id is not None
        client.update("walked", user_id="u", decision_id=chosen.decision_id, reward=1.0)
    return trace


def check(title: str, trace: Trace) -> None:
    for stop in WALKS[title]:
        assert stop.key in trace.callers, f"{stop.key} was not called"
        if stop.caller is not None:
            assert stop.caller.key in trace.callers[stop.key], (
                f"{stop.caller.key} does not call {stop.key}"
            )


@pytest.mark.parametrize("title", list(WALKS))
def test_walks_are_short(title: str):
    assert 10 <= len(WALKS[title]) <= MOST_STOPS
    assert len({stop.file for stop in WALKS[title]}) <= MOST_FILES


@pytest.mark.prefect
@pytest.mark.parametrize("title", [CANDIDATE, REWARD, THOUGHT])
@pytest.mark.slow
def test_stops_of_a_run_call_the_next(title: str, of_a_run: Trace):
    check(title, of_a_run)


def test_stops_of_a_request_call_the_next(of_a_request: Trace):
    check(REQUEST, of_a_request)


def test_a_call_that_a_walk_does_not_hold_is_no_caller():
    """The watch itself: a stop that another one does not call is seen as that."""
    trace = Trace(frozenset({("a.py", "one"), ("a.py", "two")}))
    trace.callers = {("a.py", "one"): set(), ("a.py", "two"): set()}
    one = Stop("a.py", "one", 0, None)
    WALKS["wrong"] = [one, Stop("a.py", "two", 1, one)]
    try:
        with pytest.raises(AssertionError, match="does not call"):
            check("wrong", trace)
    finally:
        del WALKS["wrong"]


@pytest.mark.parametrize(("file", "name"), [("opener", "prepare_run"), ("assembly", "assemble")])
def test_a_run_opens_in_at_most_15_statements(file: str, name: str):
    tree = ast.parse((ROOT / f"tasks/run/{file}.py").read_text(encoding="utf-8"))
    (opener,) = (node for node in tree.body if getattr(node, "name", None) == name)
    n_statements = sum(isinstance(node, ast.stmt) for node in ast.walk(opener))
    assert n_statements - 2 <= 15, "without the function itself and its docstring"


def test_files_of_the_opening_are_there():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    stations = re.findall(r"^\d\. `([\w/]+\.py)` `(\w+)`: ", page, re.MULTILINE)
    assert len(stations) == 7
    for file, name in stations:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), (file, name)


def test_files_of_the_walks_are_there():
    for stops in WALKS.values():
        for stop in stops:
            assert (ROOT / Path(stop.file)).exists(), stop.file


QUESTIONS = ("metric", "provider", "breeding operator", "table column", "CLI command")


def answers() -> dict[str, str]:
    """Return question → the rest of its row in CONTRIBUTING.md."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.split("## Where to change what")[1]
    return dict(re.findall(r"^\| ([\w ]+?) \| (.+) \|$", section, re.MULTILINE))


@pytest.mark.parametrize("question", QUESTIONS)
def test_where_to_change_what_names_what_is_there(question: str):
    named = re.findall(r"((?:`\w+`(?: and )?)+) of \[[^\]]+\]\(([^)]+)\)", answers()[question])
    assert named
    for names, file in named:
        defined = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
        found = {
            name
            for node in defined
            for name in (
                [node.name]
                if isinstance(node, ast.FunctionDef | ast.ClassDef)
                else [
                    t.id
                    for t in getattr(node, "targets", [getattr(node, "target", None)])
                    if isinstance(t, ast.Name)
                ]
            )
        }
        assert {*re.findall(r"`(\w+)`", names)} <= found, (file, names)
