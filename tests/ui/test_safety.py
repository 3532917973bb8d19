"""Attacks on the pages: other sites, other names, used tokens, SQL, paths, hostile texts."""

import json

import httpx
import pytest

from convergence.ui.guard import POLICY
from convergence.ui.sessions import LIFETIME_S, BrowserSessions
from tasks.pages.free_sql import _PLACES
from tests.support.optimizations import write_project
from tests.support.page_viewer import ADMIN, READER, Viewer, store_of
from tests.support.searching import search
from tests.ui.conftest import Open

NASTY = "<script>alert(1)</script> javascript:alert(2) \u202eevil \x1b[31m \"'` </textarea>"


def test_without_a_session_nothing_is_shown(viewer: Viewer):
    for path in ("overview", "runs", "sql?q=select 1", "events", "session"):
        answer = httpx.get(f"{viewer.server.url}/ui/api/{path}")
        assert answer.status_code == 401
        assert "convergence ui" in answer.json()["detail"]


def test_a_printed_address_works_once(viewer: Viewer):
    address = viewer.server.address()
    first = httpx.get(address)
    assert (first.status_code, first.headers["location"]) == (303, "/ui/")
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert "Path=/ui" in cookie
    again = httpx.get(address)
    assert again.status_code == 403
    assert "set-cookie" not in again.headers
    assert httpx.get(f"{viewer.server.url}/ui/?token=guess").status_code == 403
    link = viewer.server.address("runs/bot/answers")
    entered = httpx.get(link)
    assert (entered.status_code, entered.headers["location"]) == (303, "/ui/runs/bot/answers")
    assert httpx.get(link).status_code == 403


def test_a_session_ends_after_hours_without_a_request():
    now_s = [0.0]
    sessions = BrowserSessions(lambda: now_s[0])
    cookie = sessions.begin()
    now_s[0] = LIFETIME_S
    assert sessions.of(cookie) is not None
    now_s[0] = 2 * LIFETIME_S
    assert sessions.of(cookie) is not None
    now_s[0] = 3 * LIFETIME_S + 1
    assert sessions.of(cookie) is None
    assert sessions.of("guess") is None


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1:1", "localhost"]
)
def test_a_rebound_name_is_refused(viewer: Viewer, host: str):
    port = viewer.server.url.rpartition(":")[2]
    answer = viewer.client.get("/ui/api/overview", headers={"Host": host.format(port=port)})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_requests_of_other_sites_are_refused(viewer: Viewer, headers: dict[str, str]):
    assert viewer.client.get("/ui/api/overview", headers=headers).status_code == 403


@pytest.mark.parametrize(
    "path", ["/ui/", "/ui/api/overview", "/ui/static/none.js", "/ui/api/none"]
)
def test_every_answer_forbids_inline_scripts_frames_and_guessed_types(viewer: Viewer, path: str):
    headers = viewer.client.get(path).headers
    assert headers["content-security-policy"] == POLICY
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY


@pytest.mark.parametrize(
    "name",
    [
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "/etc/passwd",
        "..\\app.py",
        "%2fetc%2fpasswd",
    ],
)
def test_no_name_of_a_file_leads_out_of_the_folder(viewer: Viewer, name: str):
    answer = viewer.client.get(f"/ui/static/{name}")
    assert answer.status_code == 404, answer.text


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '/tmp/x'",
        "with x as (copy (select 1) to '/tmp/x') select 1",
        "attach '/tmp/x.db'",
        "install httpfs",
        "load httpfs",
        "create table x(a int)",
        "insert into runs select * from runs",
        "delete from runs",
        "set memory_limit = '10GB'",
        "pragma database_list",
        "select 1; drop view runs",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/hostname')",
        "select * from glob('/etc/*')",
        "select * from 'https://evil.example/x.parquet'",
        "select getenv('HOME')",
    ],
)
def test_sql_only_reads_the_tables(viewer: Viewer, sql: str):
    answer = viewer.get("sql", q=sql)
    assert answer.status_code == 400, answer.text


def test_a_query_waits_for_a_place_and_is_refused_where_none_comes_free(
    viewer: Viewer, monkeypatch
):
    monkeypatch.setattr("tasks.pages.free_sql.SECONDS", 0.1)
    assert [_PLACES.acquire(blocking=False) for _ in range(3)] == [True, True, False]
    try:
        answer = viewer.get("sql", q="select 'third'")
    finally:
        _PLACES.release(2)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith("at most 2 queries run at once.")
    monkeypatch.undo()
    assert viewer.get("sql", q="select 'fourth'").json()["rows"] == [["fourth"]]


WRITES = (
    "production/known/promote",
    "production/known/rollback",
    "runs/known/stop",
    "runs/known/resume",
)


@pytest.mark.parametrize("path", WRITES)
def test_changes_need_a_token_of_the_scope_and_the_header(viewer: Viewer, path: str):
    path = path.replace("runs/known", f"runs/{viewer.page('runs')['runs'][0]['run_id']}")
    assert viewer.post(path, token=None).status_code == 401
    assert viewer.post(path, token="guess").status_code == 401  # noqa: S106 - a guess
    answer = viewer.post(path, token=READER)
    assert (answer.status_code, answer.json()["detail"]) == (
        403, "The token READER lacks the scope admin.",
    )  # fmt: skip
    bare = viewer.client.post(
        f"/ui/api/{path}", json={}, headers={"Authorization": f"Bearer {ADMIN}"}
    )
    assert (bare.status_code, "X-Convergence-CSRF" in bare.json()["detail"]) == (403, True)
    answer = viewer.post(path)
    assert (answer.status_code, "confirm" in answer.json()["detail"]) == (400, True)


def test_a_token_opens_a_session_where_nobody_reads_what_is_printed(viewer: Viewer):
    url = f"{viewer.server.url}/ui/api/session"
    assert httpx.post(url, headers={"Authorization": f"Bearer {READER}"}).status_code == 401
    made = httpx.post(url, headers={"Authorization": f"Bearer {ADMIN}"})
    assert made.status_code == 204
    assert httpx.get(url, cookies=made.cookies).status_code == 200


def test_hostile_texts_are_data(tmp_path, opened: Open):
    path = write_project(
        tmp_path, optimization__evolution={"population_size": 3, "generations": 1}
    )
    target = (tmp_path / "target.py").read_text()
    text = f'    return {{"result": {NASTY!r} + "x" * 200_000}}\n'
    target = target.replace(
        '    return {"result": closeness', text + '    return {"result": closeness'
    )
    target = target.replace("return min(1.0, max(0.0, result))", "return 0.5")
    (tmp_path / "target.py").write_text(target)
    cases = json.loads((tmp_path / "cases.json").read_text())
    cases[0]["id"] = NASTY.replace("\x1b", "")
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    search(path)
    viewer = opened(store_of(tmp_path)).enter()
    run = f"runs/{viewer.page('runs')['runs'][0]['run_id']}"
    page = viewer.page(f"{run}/answers")
    case, candidate = page["cases"][0]["case_id"], page["candidates"][0]["candidate_id"]
    answer = viewer.get(f"{run}/cell", candidate=candidate, case=case)
    assert answer.headers["content-type"] == "application/json"
    (repeat, *_) = answer.json()["repeats"]
    assert len(repeat["answer"]) <= 100_000
    assert repeat["answer_bytes"] > 200_000
    whole = viewer.client.get(f"/ui/api/{repeat['answer_url']}")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert whole.headers["content-disposition"] == 'attachment; filename="answer.txt"'
    assert len(whole.text) > 200_000
    assert viewer.page(f"{run}/answers", search="alert(1)")["n_cases"] >= 1
