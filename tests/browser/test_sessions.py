"""Sessions at the provider's API: opened, released, swept and billed, whatever it answers."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.config.api import ApiConfig
from convergence_core.errors import CandidateFault, ConfigurationError, InfrastructureFault
from convergence_core.records import Case
from tasks.functions.workers import WorkerFailure, WorkOutcome
from tasks.secrets.redaction import Secrets
from tasks.targets.browser import (
    MARK,
    ScriptEnd,
    SessionClient,
    check_playwright,
    check_script,
    recording_of,
)
from tasks.targets.browserbase import BrowserbaseTarget
from tasks.targets.local_browser import check_chromium
from tests.support.browserbase_form import browser_server

CASE = Case(case_id="c", input={"n": 1}, expected="1")
PRICES = PriceTable(version="2026-01-01").with_overrides(
    {"browserbase": {"minute": 0.002, "proxy_gb": 10.0}}
)
DONE = ScriptEnd(ending="done", outcome=WorkOutcome("1", None, 5.0), n_bytes=10)


class Script:
    """In place of a browser: ends as it is told."""

    def __init__(self, end=DONE) -> None:
        self.end = end
        self.began = asyncio.Event()

    async def run(self, session, case_input, params):
        self.began.set()
        if isinstance(self.end, BaseException):
            raise self.end
        if self.end is None:
            await asyncio.Event().wait()
        return self.end

    async def aclose(self) -> None:
        """Nothing is held."""


def target_at(
    url: str, script: Any = None, *, body: Any = None, prices: Any = PRICES, offline: bool = False
) -> BrowserbaseTarget:
    api = ApiConfig.model_validate(
        {
            "name": "scrape",
            "kind": "browserbase",
            "function": "scrape.py:run",
            "endpoint": url,
            "auth": {"type": "api_key", "token_env": "BB_KEY", "header_name": "x-bb-api-key"},
            "request": {"timeout_seconds": 5, "body": body},
        }
    )
    runner: Any = script or Script()
    target = BrowserbaseTarget(
        api,
        runner,
        secrets=Secrets({"BB_KEY": "bb-secret"}),
        workers=2,
        prices=prices,
        is_offline=offline,
    )
    target.bind("run-1")
    return target


def ask(target: BrowserbaseTarget, params: Any = None) -> Any:
    async def go() -> Any:
        try:
            return await target.call(params or {}, CASE)
        finally:
            await target.aclose()

    return asyncio.run(go())


def client_of(url: str) -> SessionClient:
    return SessionClient(url, headers=dict, secret=None, n_connections=2)


def open_sessions(url: str, run_id: str = "run-1") -> int:
    async def go() -> int:
        client = client_of(url)
        try:
            return await client.sweep({run_id})
        finally:
            await client.aclose()

    return asyncio.run(go())


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with browser_server(starts_browsers=False) as server:
        yield server.url


@contextmanager
def provider(answer) -> Iterator[str]:
    """Serve ``answer(method, path, body) -> (status, JSON)`` in the provider's place."""

    class Handler(BaseHTTPRequestHandler):
        def _do(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            status, told = answer(self.command, self.path, json.loads(body or b"null"))
            data = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _do  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def session(**fields: Any) -> dict[str, Any]:
    began, ended = "2026-01-01T00:00:00Z", "2026-01-01T00:01:01Z"
    told = {"id": "s1", "status": "COMPLETED", "startedAt": began, "endedAt": ended}
    return {**told, "connectUrl": "ws://x/?signingKey=sk-very-secret", "proxyBytes": 0, **fields}


# -- what is sent and billed


def test_a_session_is_asked_for_marked_released_and_billed_by_begun_minutes():
    seen = []

    def answer(method, path, body):
        seen.append((method, path, body))
        return 200, session(proxyBytes=500_000_000)

    body = {"region": "{r}", "browserSettings": {"blockAds": "{b}"}, "keepAlive": True}
    with provider(answer) as url:
        reply = ask(target_at(url, body=body), {"r": "us-east-1", "b": True})
    assert seen == [
        (
            "POST",
            "/v1/sessions",
            {
                "region": "us-east-1",
                "browserSettings": {"blockAds": True},
                "keepAlive": True,
                "timeout": 60,
                "userMetadata": {MARK: "run-1"},
            },
        ),
        ("POST", "/v1/sessions/s1", {"status": "REQUEST_RELEASE"}),
    ]
    assert reply.cost_usd == pytest.approx(2 * 0.002 + 0.5 * 10)  # 61 s are two minutes
    assert reply.price_version == "config"
    assert reply.extra == {"loaded_bytes": 10.0, "session_seconds": 61.0}


@pytest.mark.parametrize(
    ("body", "usd"),
    [
        (None, 0.004),  # its end may come a moment after the time-out of a minute
        ({"timeout": 61}, 0.004),
        ({"timeout": 21_600}, 0.722),
        ({"proxies": False}, 0.004),
        ({"proxies": True}, 0.004 + 2 * 10_000_000 / 1e9 * 10),
        ({"proxies": [{"type": "browserbase"}]}, 0.004 + 2 * 10_000_000 / 1e9 * 10),
    ],
)
def test_the_budget_reserves_the_whole_time_out_and_what_proxies_may_carry(body, usd):
    target = target_at("http://127.0.0.1:9", body=body)
    assert target.worst_case({}, CASE).usd == pytest.approx(usd)


def test_the_request_holds_what_shapes_the_answer_and_no_secret(url):
    request = target_at(url, body={"region": "{r}"}).request({"r": "us-west-2"}, CASE)
    assert request == {
        "url": f"{url}/v1/sessions",
        "script": "scrape.py:run",
        "session": {"region": "us-west-2", "timeout": 60},
        "input": {"n": 1},
        "params": {"r": "us-west-2"},
    }


@pytest.mark.parametrize("value", ["mars", 10**9, True, None])
def test_parameters_that_make_no_session_are_refused_before_anything_is_sent(value):
    target = target_at("http://127.0.0.1:9", body={"timeout": "{v}"})
    with pytest.raises(CandidateFault, match="`timeout`") as found:
        ask(target, {"v": value})
    assert found.value.error_type == "invalid_session"


# -- faults


@pytest.mark.parametrize(
    ("status", "fault", "retryable"),
    [
        (400, CandidateFault, None),
        (401, InfrastructureFault, False),
        (402, InfrastructureFault, False),
        (403, InfrastructureFault, False),
        (429, InfrastructureFault, True),
        (500, InfrastructureFault, True),
        (503, InfrastructureFault, True),
    ],
)
def test_a_refused_creation_is_the_right_fault(status, fault, retryable):
    refused = {"statusCode": status, "error": "no", "message": "concurrency limit"}
    with provider(lambda *_: (status, refused)) as url, pytest.raises(fault) as found:
        ask(target_at(url))
    assert found.value.error_type == f"http_{status}"
    assert getattr(found.value, "retryable", None) == retryable
    assert found.value.billed is None
    assert "bb-secret" not in f"{found.value}{found.value.details}"


@pytest.mark.parametrize("told", [None, [], {}, {"id": 3}, {"id": "s1"}, "x"])
def test_an_answer_that_names_no_session_may_have_been_billed(told):
    with provider(lambda *_: (200, told)) as url, pytest.raises(InfrastructureFault) as found:
        ask(target_at(url))
    assert (found.value.error_type, found.value.may_be_billed) == ("bad_body", True)


FAILED = WorkOutcome(None, WorkerFailure("Error", "no ws://x/?signingKey=sk-very-secret"), 1.0)


@pytest.mark.parametrize(
    ("ending", "status", "fault", "error_type"),
    [
        ("timeout", "COMPLETED", CandidateFault, "timeout"),
        ("too_large", "COMPLETED", CandidateFault, "too_large"),
        ("done", "COMPLETED", CandidateFault, "Error"),
        ("lost", "TIMED_OUT", CandidateFault, "session_timeout"),
        ("lost", "ERROR", InfrastructureFault, "browser_lost"),
        ("network", "COMPLETED", InfrastructureFault, "network"),
        ("not_connected", "COMPLETED", InfrastructureFault, "no_browser"),
    ],
)
def test_however_a_script_ends_its_session_is_billed_and_its_key_is_hidden(
    ending, status, fault, error_type
):
    script = Script(ScriptEnd(ending=ending, outcome=FAILED))
    answer = session(status=status)
    with provider(lambda *_: (200, answer)) as url, pytest.raises(fault) as found:
        ask(target_at(url, script))
    assert found.value.error_type == error_type
    assert found.value.billed.cost_usd == pytest.approx(0.004)
    assert "recording: https://www.browserbase.com/sessions/s1" in str(found.value)
    assert "very-secret" not in f"{found.value}{found.value.details}"


@pytest.mark.parametrize(
    "session_id",
    [
        "",
        "../..",
        "s1?next=//evil",
        "javascript:alert(1)",
        's1" onclick="x',
        "s1\n",
        "s" * 101,
        "\u202e1",
    ],
)
def test_an_id_of_another_form_makes_no_address(session_id: str):
    assert recording_of(session_id) is None


def test_a_session_that_cannot_be_released_is_billed_until_its_time_out(monkeypatch, caplog):
    monkeypatch.setattr("tasks.targets.browserbase._RELEASES_S", (0.0, 0.0, 0.0))

    def answer(_method, path, _body):
        return (200, session(status="RUNNING")) if path == "/v1/sessions" else (500, {})

    with provider(answer) as url, caplog.at_level(logging.WARNING):
        reply = ask(target_at(url, body={"timeout": 600}))
    assert reply.cost_usd == pytest.approx(10 * 0.002)
    # Three tries after the call, three more when the target is closed.
    assert caplog.text.count("session s1 is not released yet") == 6


def test_a_call_that_is_given_up_releases_its_session(url):
    async def go() -> None:
        script = Script(end=None)
        target = target_at(url, script)
        call = asyncio.create_task(target.call({}, CASE))
        await script.began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await target.aclose()
        await target.aclose()

    asyncio.run(go())
    assert open_sessions(url) == 0


def test_a_sweep_releases_the_run_s_sessions_and_no_others(url, caplog):
    async def leave_open(run_id: str) -> None:
        client = client_of(url)
        await client.create({}, run_id)
        await client.aclose()

    for run_id in ("killed", "killed", "before", "living"):
        asyncio.run(leave_open(run_id))
    with caplog.at_level(logging.WARNING):
        target_at(url).sweep(["killed"])
        target_at(url).sweep(["before", "none"])
    assert "released 2 browser sessions that were left open" in caplog.text
    assert "released 1 browser sessions that were left open" in caplog.text
    left = {run_id: open_sessions(url, run_id) for run_id in ("killed", "before", "living")}
    assert left == {"killed": 0, "before": 0, "living": 1}


# -- what is missing


def test_a_missing_extra_and_a_missing_browser_are_said_in_one_sentence(monkeypatch):
    monkeypatch.setattr("tasks.targets.browser.find_spec", lambda _: None)
    with pytest.raises(
        ConfigurationError, match=r"needs Playwright.* Run: pip install .*browserbase"
    ):
        check_playwright()
    monkeypatch.setattr("tasks.targets.local_browser.shutil.which", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"needs Chromium.* Run: apt install chromium"):
        check_chromium()


def test_a_script_awaits_and_takes_three_arguments():
    async def short(page, case):
        """Do nothing."""

    def plain(page: Any, case: Any, parameters: Any) -> Any:
        """Do nothing."""

    with pytest.raises(ConfigurationError, match="three arguments"):
        check_script(short, "scrape.py:run")
    with pytest.raises(ConfigurationError, match="`async` function"):
        check_script(plain, "scrape.py:run")


# -- the mock


def test_the_provider_s_own_sdk_reads_what_the_stand_in_answers(url):
    sdk = pytest.importorskip("browserbase")
    client = sdk.Browserbase(api_key="k", base_url=url, max_retries=0)
    made = client.sessions.create(
        region="eu-central-1",
        browser_settings={"block_ads": True, "viewport": {"width": 900, "height": 700}},
        keep_alive=True,
        api_timeout=120,
        user_metadata={MARK: "sdk"},
    )
    assert (made.status, made.region, made.keep_alive) == ("RUNNING", "eu-central-1", True)
    assert made.connect_url.startswith("ws://")
    query = f"user_metadata['{MARK}']:'sdk'"
    assert [one.id for one in client.sessions.list(q=query, status="RUNNING")] == [made.id]
    client.sessions.update(made.id, status="REQUEST_RELEASE")
    found = client.sessions.retrieve(made.id)
    assert found.status == "COMPLETED"
    assert found.ended_at >= found.started_at
    with pytest.raises(sdk.NotFoundError):
        client.sessions.retrieve("nobody")
    client.close()
