"""Scripts in real browsers of the mock: results, faults, isolation, and nothing left open."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("playwright")

from convergence_core.config.api import ApiConfig
from convergence_core.errors import CandidateFault, EndpointDownError, InfrastructureFault
from convergence_core.records import Case
from tasks.secrets.redaction import Secrets
from tasks.targets.browser import ScriptRunner
from tasks.targets.browserbase import BrowserbaseTarget
from tasks.targets.local_browser import chromium_path
from tests.support.browserbase_form import BrowserSessions, browser_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium_path() is None, reason="chromium is missing"),
]

PAGE = b"<html><body><h1 id=t>hello</h1><img src=http://ads.localhost:%d/ad></body></html>"


class Site(BaseHTTPRequestHandler):
    """Pages of the tests; ``/never`` never ends, ``/big`` is two megabytes."""

    server: "SiteServer"
    hanging = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/never":
            self.hanging.wait(30)
        body = b"x" * 2_000_000 if self.path == "/big" else PAGE % self.server.server_port
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("set-cookie", "seen=yes")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the browser went away
            self.wfile.write(body)
        self.server.hosts.append(self.headers["host"].split(":")[0])

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class SiteServer(ThreadingHTTPServer):
    """The site, which keeps what hosts were asked for."""

    hosts: list[str]
    url: str


@pytest.fixture(scope="module")
def site() -> Iterator[SiteServer]:
    server = SiteServer(("127.0.0.1", 0), Site)
    server.hosts = []
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    server.url = f"http://127.0.0.1:{server.server_port}"
    yield server
    Site.hanging.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def stand_in() -> Iterator[BrowserSessions]:
    with browser_server() as server:
        yield server


def ask(
    server: BrowserSessions,
    script: Any,
    case_input: Any,
    *,
    body: Any = None,
    timeout_s: float = 10.0,
    max_bytes: int = 1_000_000,
    calls: int = 1,
    offline: bool = False,
) -> Any:
    api = ApiConfig.model_validate(
        {
            "name": "scrape",
            "kind": "browserbase",
            "function": "scrape.py:run",
            "endpoint": server.url,
            "request": {
                "body": body,
                "timeout_seconds": timeout_s,
                "max_response_bytes": max_bytes,
            },
        }
    )
    runner = ScriptRunner(
        script, connect_s=60, timeout_s=timeout_s, max_bytes=max_bytes, n_workers=2
    )
    target = BrowserbaseTarget(api, runner, secrets=Secrets(), workers=2, is_offline=offline)
    target.bind("run-1")
    case = Case(case_id="c", input=case_input, expected="hello")

    async def go() -> Any:
        try:
            asked = (target.call({"k": 2}, case) for _ in range(calls))
            return await asyncio.gather(*asked, return_exceptions=calls > 1)
        finally:
            await target.aclose()

    found = asyncio.run(go())
    assert {session["status"] for session in sessions_of(server)} <= {
        "COMPLETED",
        "TIMED_OUT",
        "ERROR",
    }
    return found if calls > 1 else found[0]


def sessions_of(server: BrowserSessions) -> list[dict[str, Any]]:
    return [session.to_json() for session in server.sessions.values()]


async def read_title(page, case, parameters):
    await page.goto(case["url"])
    shown = await page.evaluate("[innerWidth, document.cookie, localStorage.mark ?? 'none']")
    await page.evaluate("localStorage.mark = 'left'")
    text = await page.inner_text("#t")
    return {"result": {"text": text, "shown": shown, "k": parameters["k"]}, "metrics": {"n": 1}}


def test_a_script_reads_a_page_in_a_browser_of_the_form_asked_for(stand_in, site):
    body = {"browserSettings": {"viewport": {"width": 777, "height": 600}}}
    reply = ask(stand_in, read_title, {"url": site.url}, body=body)
    assert reply.value["text"] == "hello"
    assert (reply.value["shown"][0], reply.value["k"]) == (777, 2)
    assert reply.extra["n"] == 1
    assert reply.extra["loaded_bytes"] >= len(PAGE)
    assert reply.latency_ms > 0


def test_a_session_finds_nothing_of_the_one_before(stand_in, site):
    first = ask(stand_in, read_title, {"url": site.url})
    second = ask(stand_in, read_title, {"url": site.url})
    assert first.value["shown"] == second.value["shown"]
    assert second.value["shown"][2] == "none"


def test_offline_a_browser_of_this_machine_replaces_the_session(stand_in, site):
    n_before = len(stand_in.sessions)
    body = {"browserSettings": {"blockAds": True}}
    site.hosts.clear()
    reply = ask(stand_in, read_title, {"url": site.url}, body=body, offline=True)
    assert (reply.value["text"], reply.recording_url) == ("hello", None)
    assert reply.extra["session_seconds"] > 0
    assert len(stand_in.sessions) == n_before
    assert "ads.localhost" not in site.hosts


async def raise_error(page, case, parameters):
    raise KeyError("no price on the page")


async def wait_for_ever(page, case, parameters):
    await page.goto(case["url"] + "/never")


async def wait_for_a_missing_element(page, case, parameters):
    await page.goto(case["url"])
    await page.click("#missing", timeout=200)


async def load_much(page, case, parameters):
    popup = await page.context.new_page()
    await popup.goto(case["url"] + "/big")
    await asyncio.Event().wait()


async def return_no_json(page, case, parameters):
    return page


async def visit_nobody(page, case, parameters):
    await page.goto("http://127.0.0.1:8931/")


async def ignore_the_end(page, case, parameters):
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("script", "limit_s", "fault", "error_type"),
    [
        (raise_error, 10, CandidateFault, "KeyError"),
        (wait_for_ever, 0.5, CandidateFault, "timeout"),
        (wait_for_a_missing_element, 10, CandidateFault, "TimeoutError"),
        (load_much, 10, CandidateFault, "too_large"),
        (return_no_json, 10, CandidateFault, "not_json"),
        (visit_nobody, 10, InfrastructureFault, "network"),
        (ignore_the_end, 0.2, CandidateFault, "timeout"),
    ],
)
def test_a_script_that_goes_wrong_is_the_right_fault_and_leaves_nothing_open(  # noqa: PLR0917 - of pytest
    stand_in, site, monkeypatch, script, limit_s, fault, error_type
):
    monkeypatch.setattr("tasks.targets.browser._LEAVE_S", 0.3)
    with pytest.raises(fault) as found:
        ask(stand_in, script, {"url": site.url}, timeout_s=limit_s)
    assert found.value.error_type == error_type
    assert "signingKey" not in f"{found.value}{found.value.details}"


def test_a_script_that_blocks_its_loop_is_given_up_and_its_session_released(stand_in, monkeypatch):
    monkeypatch.setattr("tasks.targets.browser._SLACK_S", -45.0)  # of the connection's wait
    let_go = threading.Event()

    async def block(page, case, parameters):
        let_go.wait(300)

    try:
        found = ask(stand_in, block, {}, timeout_s=1.0, calls=3)
    finally:
        let_go.set()
    kinds = {type(one) for one in found}
    assert kinds <= {CandidateFault, EndpointDownError}
    assert any("holds its event loop" in str(one) for one in found)


def test_a_session_that_ends_under_its_script_is_told_by_its_status(stand_in):
    async def outlive(page, case, parameters):
        running = next(s for s in stand_in.sessions.values() if s.status == "RUNNING")
        await asyncio.to_thread(running.end, "TIMED_OUT")
        await page.wait_for_selector("#never")

    with pytest.raises(CandidateFault, match="ended by its own `timeout`") as found:
        ask(stand_in, outlive, {})
    assert found.value.error_type == "session_timeout"


def test_a_browser_that_dies_is_the_infrastructure_s_and_the_next_session_works(stand_in, site):
    async def crash(page, case, parameters):
        running = next(s for s in stand_in.sessions.values() if s.status == "RUNNING")
        running.process.stdin.close()
        await page.wait_for_selector("#never")

    with pytest.raises(InfrastructureFault) as found:
        ask(stand_in, crash, {})
    assert found.value.error_type == "browser_lost"
    assert ask(stand_in, read_title, {"url": site.url}).value["text"] == "hello"
