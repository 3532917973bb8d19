"""Money of served answers: in the ledger whoever leaves, under the day's limit, through a kill."""

import asyncio
import contextlib
import datetime
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from convergence_core.config.models import BudgetConfig
from convergence_core.errors import ConfigurationError, EvaluatorFault
from convergence_core.ports import WorstCase
from convergence_core.records import Reply
from tasks.calls.metric_calls import PaidCall
from tasks.chat.paid_answers import PaidAnswers
from tasks.pages.overview import overview
from tasks.pages.source import PageSource
from tasks.secrets import process_redaction
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import Redactor
from tasks.serving.fold import fold_store
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.runtime.answers import export_answers
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.service.conftest import SECRETS
from tests.service.test_chat import COMPLETIONS, HI, Talk
from tests.service.test_gateway import expire, offer
from tests.support.chat_servers import chunk, events
from tests.support.configurations import chat_api, mapping
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer, error_answer
from tests.support.page_viewer import column

PRICES = {"m": {"input": 1_000, "output": 1_000}, "e": {"input": 1_000, "output": 0}}
COST_USD = 0.01
"""Of each answer here: ten tokens."""
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
SHORT: Any = {**HI, "max_tokens": 3}
Talks = Callable[..., Talk]


@pytest.fixture
def talks(store: RuntimeStore) -> Iterator[Talks]:
    with ExitStack() as stack:
        yield lambda **options: Talk(store, stack, prices=PRICES, **options)


def client_of(talk: Talk, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{talk.url}/v1", api_key=SECRETS["admin"], **options)


def totals(root: Path) -> Any:
    """Return the ledger of this day's answers; of the night before, too, where midnight has just passed."""
    days = [
        datetime.datetime.now(datetime.UTC).date() - datetime.timedelta(days=n) for n in (0, 1)
    ]
    with contextlib.closing(open_journal(root)) as journal:
        found = [journal.totals(f"answers/system/{day}") for day in days]
    return next((one for one in found if one.n_attempts), found[0])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("fails", [False, True])
def test_a_call_whose_client_leaves_goes_on_and_its_cost_is_in_the_ledger(
    talks, store, stream, fails
):
    talk = talks()
    asked, let_go = threading.Event(), threading.Event()

    def slow(_: Request) -> Answer:
        asked.set()
        let_go.wait(30)
        return error_answer(500) if fails else chat_answer("late")

    talk.answer = slow
    host, _, port = talk.url.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port))
    headers = {"Authorization": f"Bearer {SECRETS['chat']}", "Content-Type": "application/json"}
    connection.request("POST", COMPLETIONS, json.dumps({**HI, "stream": stream}), headers)
    assert asked.wait(60)
    connection.close()
    talk.wait_for_answers(1)
    assert totals(store.root).n_in_flight == 1
    let_go.set()
    talk.end()
    ledger = totals(store.root)
    if fails:
        assert (ledger.n_failed, ledger.cost_usd, ledger.maybe_usd) == (1, 0.0, 0.0)
    else:
        assert (ledger.n_done, ledger.cost_usd) == (1, pytest.approx(COST_USD))
    assert talk.feedback.history("ada") == []


def test_a_stream_that_is_cut_counts_with_its_highest_cost(talks, store):
    talk = talks()
    talk.answer = lambda _: events([chunk(content="half")], done=False)
    with talk.streamed(SHORT) as answer:
        answer.read()
    ledger = totals(store.root)
    assert (ledger.n_failed, ledger.cost_usd) == (1, 0.0)
    assert 0.2 < ledger.maybe_usd < 1.0


def test_64_clients_never_pass_the_days_limit_and_a_restart_keeps_it(talks, store):
    talk = talks(max_usd=1.0)
    talk.answer = lambda _: chat_answer("yes")

    def ask(_: int) -> str:
        with client_of(talk) as client:
            try:
                client.chat.completions.create(
                    model="convergence/system", messages=SHORT["messages"], max_tokens=3
                )
            except openai.RateLimitError as refused:
                assert refused.code == refused.type == "insufficient_quota"  # noqa: PT017
                return refused.message
        return ""

    with ThreadPoolExecutor(64) as pool:
        refusals = list(pool.map(ask, range(160)))
    n_answered = refusals.count("")
    # Each reserves about a third of the limit; the next one was refused where that no longer fits.
    assert 60 <= n_answered < 100
    shown = r"`--max-usd` must cover the answer, but \$0\.\d+ of \$1\.00 is paid .* Raise it"
    assert all(re.search(shown, refused) for refused in refusals if refused)
    assert len(talk.provider.requests) == n_answered  # refused ones were neither sent nor repeated
    assert totals(store.root).cost_usd == pytest.approx(n_answered * COST_USD)
    talk.end()

    again = talks(max_usd=1.0)
    again.answer = talk.answer
    assert again.post(SHORT).status_code == 429
    assert again.provider.requests == []


def test_a_call_of_unknown_price_is_refused_under_a_limit_with_its_fix(talks):
    talk = talks(max_usd=1.0)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    pictured = {**SHORT, "messages": [{"role": "user", "content": [image]}]}
    for body, fix in ((pictured, "Send text alone"), (HI, "send `max_tokens`")):
        refused = talk.post(body)
        assert refused.status_code == 429
        message = refused.json()["error"]["message"]
        assert "unknown for 'm'" in message
        assert fix in message
        assert "allow_unknown_prices: true" in message
    assert talk.provider.requests == []


def test_an_arm_whose_call_the_limit_refuses_misses_no_reward(talks, store):
    talk = talks(max_usd=0.0001)
    systems = offer(store, {"model": "m"}, expires_after_s=60, missing_reward=0.0)
    assert talk.post(SHORT).status_code == 429
    assert store.fetch("SELECT count(*) FROM decisions") == [(1,)]
    expire(store)
    assert [arm.n for arm in systems.arms("system")] == [0]


def test_a_second_service_of_a_store_cannot_keep_the_same_limit(talks):
    talk = talks(max_usd=1.0)
    with pytest.raises(ConfigurationError, match="must be kept by one service of a store"):
        talks(max_usd=2.0)
    talk.end()
    talks(max_usd=2.0)


def test_the_limit_is_one_of_a_day(tmp_path):
    now_us = [1_800_000_000_000_000]

    async def send() -> Reply:
        return Reply(value={}, latency_ms=1.0, cost_usd=0.9)

    call = PaidCall(
        purpose="answer", provider="openai", model="m", request={}, worst=WorstCase(usd=0.9),
        timeout_s=1.0, send=send,
    )  # fmt: skip

    async def go() -> None:
        limits, journal = BudgetConfig(max_usd=1.0), open_journal(tmp_path)
        paid = PaidAnswers(journal, system="s", limits=limits, now_us=lambda: now_us[0])
        await paid.make(call, "i1")
        with pytest.raises(EvaluatorFault, match=r"\$0\.90 of \$1\.00 is paid today"):
            await paid.make(call, "i2")
        now_us[0] += 86_400_000_000
        await paid.make(call, "i3")
        await paid.aclose()

    asyncio.run(go())


def test_a_fold_shows_answers_where_runs_show_their_money(tmp_path):
    now_us = [1_800_000_000_000_000]  # 15 January 2027
    usds = iter([0.25, 0.5, None])

    async def send() -> Reply:
        return Reply(value={}, latency_ms=1.0, cost_usd=next(usds))

    call = PaidCall(
        purpose="answer", provider="openai", model="m", request={}, worst=WorstCase(usd=0.9),
        timeout_s=1.0, send=send,
    )  # fmt: skip

    async def go(n_calls: int) -> None:
        paid = PaidAnswers(open_journal(tmp_path), system="a/b", now_us=lambda: now_us[0])
        for number in range(n_calls):
            await paid.make(call, f"i{number}")
        await paid.aclose()

    def costs() -> list[dict[str, Any]]:
        fold_store(tmp_path)
        return store.rows("SELECT run_id, n_calls, n_unpriced, cost_usd FROM costs ORDER BY ALL")

    store = ParquetStore(tmp_path)
    asyncio.run(go(1))
    day = {"run_id": "answers/a/b/2027-01-15", "n_calls": 1, "n_unpriced": 0, "cost_usd": 0.25}
    assert costs() == costs() == [day]
    asyncio.run(go(2))
    day |= {"n_calls": 3, "n_unpriced": 1, "cost_usd": 0.75}
    assert costs() == [day]
    with contextlib.closing(open_journal(tmp_path)) as journal:
        ledger = journal.totals("answers/a/b/2027-01-15")
    assert (ledger.n_attempts, ledger.n_unpriced, ledger.cost_usd) == (3, 1, 0.75)
    assert store.check() == {}
    assert store.rows("SELECT sum(cost_usd) AS usd, count(*) AS n FROM attempts") == [
        {"usd": 0.75, "n": 3}
    ]
    page = overview(PageSource(store))
    assert column(page, "system", of="Systems") == ["a/b"]
    paid = "3 calls, $0.75 and 1 call of unknown price"
    assert column(page, "paid answers", of="Systems") == [paid]


def test_the_file_of_a_day_that_is_long_over_is_written_again_only_if_it_lacks_something(tmp_path):
    day_us = 86_400_000_000

    async def send() -> Reply:
        return Reply(value={}, latency_ms=1.0)

    call = PaidCall(
        purpose="answer", provider="openai", model="m", request={}, worst=WorstCase(),
        timeout_s=1.0, send=send,
    )  # fmt: skip

    async def go(inquiry: str) -> None:
        paid = PaidAnswers(open_journal(tmp_path), system="s", now_us=lambda: 0)
        await paid.make(call, inquiry)
        await paid.aclose()

    asyncio.run(go("i1"))
    with contextlib.closing(open_journal(tmp_path)) as journal:
        assert export_answers(journal, tmp_path, day_us) == 1
        assert export_answers(journal, tmp_path, 2 * day_us - 1) == 1
        assert export_answers(journal, tmp_path, 2 * day_us) == 0
        (file,) = tmp_path.glob("final/attempts/day=1970-01-01/*.parquet")
        asyncio.run(go("i2"))
        os.utime(file, (4 * day_us // 10**6,) * 2)  # as a copy of the store leaves it
        assert export_answers(journal, tmp_path, 3 * day_us) == 2
        assert export_answers(journal, tmp_path, 3 * day_us) == 0
        file.write_bytes(file.read_bytes()[:100])
        assert export_answers(journal, tmp_path, 3 * day_us) == 2
        assert export_answers(journal, tmp_path, 3 * day_us) == 0


def test_the_end_of_a_call_reaches_the_file_of_a_day_that_is_long_over(tmp_path):
    is_begun, may_end = asyncio.Event(), asyncio.Event()

    async def send() -> Reply:
        is_begun.set()
        await may_end.wait()
        return Reply(value={}, latency_ms=1.0)

    call = PaidCall(
        purpose="answer", provider="openai", model="m", request={}, worst=WorstCase(),
        timeout_s=5.0, send=send,
    )  # fmt: skip

    async def go() -> None:
        paid = PaidAnswers(open_journal(tmp_path), system="s", now_us=lambda: 0)
        made = asyncio.create_task(paid.make(call, "i1"))
        await is_begun.wait()
        with contextlib.closing(open_journal(tmp_path)) as journal:
            assert export_answers(journal, tmp_path, 3 * 86_400_000_000) == 1
        may_end.set()
        await made
        await paid.aclose()

    asyncio.run(go())
    with contextlib.closing(open_journal(tmp_path)) as journal:
        assert export_answers(journal, tmp_path, 3 * 86_400_000_000) == 1
    assert ParquetStore(tmp_path).rows("SELECT state FROM attempts") == [{"state": "done"}]


# -- what passes through


def test_embeddings_pass_through_and_are_paid(talks, store):
    talk = talks(max_usd=1.0)
    data = [{"object": "embedding", "index": 0, "embedding": [0.25, -1.0]}]
    usage = {"prompt_tokens": 10, "total_tokens": 10}
    talk.answer = lambda _: Answer({"object": "list", "data": data, "model": "e", "usage": usage})
    with client_of(talk) as client:
        made = client.embeddings.create(model="e", input=["x"], encoding_format="float")
    assert made.data[0].embedding == [0.25, -1.0]
    (sent,) = talk.provider.requests
    assert (sent.path, sent.body) == (
        "/embeddings", {"model": "e", "input": ["x"], "encoding_format": "float"}
    )  # fmt: skip
    ledger = totals(store.root)
    assert (ledger.n_done, ledger.cost_usd) == (1, pytest.approx(COST_USD))


RESPONSE: Any = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "error": None,
    "output": [{
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Hi.", "annotations": []}],
    }],
    "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
    "usage": {
        "input_tokens": 7, "output_tokens": 3, "total_tokens": 10,
        "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
    },
}  # fmt: skip


def response_events(*last: Any) -> Answer:
    delta = {
        "type": "response.output_text.delta", "delta": "Hi.", "item_id": "msg_1", "output_index": 0,
        "content_index": 0, "sequence_number": 1, "logprobs": [],
    }  # fmt: skip
    return events([delta, *last], done=False)


@pytest.mark.parametrize("stream", [False, True])
def test_responses_pass_through_whole_and_streamed_and_are_paid(talks, store, stream):
    talk = talks(max_usd=1.0)
    done = {"type": "response.completed", "response": RESPONSE, "sequence_number": 2}
    talk.answer = lambda _: response_events(done) if stream else Answer(RESPONSE)
    asked: Any = {"model": "m", "input": "Hi?", "max_output_tokens": 3, "stream": stream}
    with client_of(talk) as client:
        made: Any = client.responses.create(**asked)
        if stream:
            pieces = list(made)
            assert [piece.type for piece in pieces] == ["response.output_text.delta", done["type"]]
            made = pieces[-1].response
    assert made.output_text == "Hi."
    (sent,) = talk.provider.requests
    assert (sent.path, sent.body) == ("/responses", asked)
    ledger = totals(store.root)
    assert (ledger.n_done, ledger.cost_usd) == (1, pytest.approx(COST_USD))


def test_a_stream_that_passes_through_and_breaks_ends_with_an_error_and_counts(talks, store):
    talk = talks()
    talk.answer = lambda _: response_events()
    with client_of(talk, max_retries=0) as client, pytest.raises(openai.APIError, match="was cut"):
        list(client.responses.create(model="m", input="Hi?", max_output_tokens=3, stream=True))
    assert totals(store.root).maybe_usd > 0.2


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "server_error", "message": "boom"},
        {"type": "error", "error": {"code": "server_error", "message": "boom"}},
    ],
)
def test_the_message_of_an_error_in_a_stream_of_responses_reaches_the_client(talks, error):
    talk = talks()
    talk.answer = lambda _: response_events(error)
    with talk.client() as client:
        answer = client.post("/v1/responses", json={"model": "m", "stream": True}).text
    assert '"message":"boom"' in answer.replace(": ", ":")
    assert "was cut" not in answer
    told = [json.loads(data) for data in re.findall(r"^data: (.*)$", answer, re.MULTILINE)]
    assert [piece.get("type") for piece in told] == ["response.output_text.delta", "error"]


def test_a_key_that_an_event_of_the_provider_repeats_is_taken_out(talks):
    talk = talks()
    error = {"type": "error", "message": f"no key {SECRETS['admin']}"}
    talk.answer = lambda _: response_events(error)
    with talk.client() as client:
        answer = client.post("/v1/responses", json={"model": "m", "stream": True}).text
    assert "event: error\ndata: " in answer
    assert "no key " in answer
    assert SECRETS["admin"] not in answer


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "convergence/system"}, 422, "must be the provider's"),
        ({"model": "m", "background": True}, 422, "`background` must be left out"),
        ({"model": "unpriced"}, 429, "unknown for 'unpriced'"),
        ({"model": "m", "input": [["["] * 3] * 2, "previous_response_id": "r"}, 429, "unknown"),
    ],
)
def test_what_may_not_pass_through_is_refused_before_anyone_is_asked(talks, body, status, words):
    talk = talks(max_usd=1.0)
    with talk.client() as client:
        refused = client.post("/v1/responses", json={"input": "Hi?", **body})
    assert refused.status_code == status
    assert words in refused.json()["error"]["message"]
    assert talk.provider.requests == []


@pytest.mark.parametrize("hostile", ["1e999", '"\\ud800"'])
def test_bodies_that_are_no_json_text_are_refused_and_take_no_slot(talks, hostile):
    talk = talks(max_usd=1.0)
    with talk.client() as client:
        for _ in range(65):
            refused = client.post(
                "/v1/embeddings",
                content=f'{{"model": "e", "input": "x", "user": {hostile}}}',
                headers={"content-type": "application/json"},
            )
            assert refused.status_code == 422
        talk.answer = lambda _: Answer({"data": [], "usage": {"prompt_tokens": 1}})
        assert client.post("/v1/embeddings", json={"model": "e", "input": "x"}).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_what_only_looks_like_a_secret_passes_and_the_projects_own_do_not(talks, stream):
    talk = talks()
    looks = 'token = "q7Zp2LmX9vTs4RdK"'
    assert redacted_text(looks) != looks
    text = f"{looks} {SECRETS['admin']}"
    piece = {"type": "response.output_text.delta", "delta": text}
    talk.answer = lambda _: response_events(piece) if stream else Answer({"text": text})
    with talk.client() as client:
        answer = client.post("/v1/responses", json={"model": "m", "stream": stream}).text
    assert "q7Zp2LmX9vTs4RdK" in answer
    assert SECRETS["admin"] not in answer


@pytest.mark.parametrize("secret", ["staging", "Production-Environment", "OPEN_SESAME"])
def test_a_secret_made_of_words_passes_in_an_answer_and_not_in_an_error(
    talks, monkeypatch, secret
):
    monkeypatch.setattr(process_redaction, "_redact", Redactor(values=[secret]))
    talk = talks()
    said = f"The {secret.lower()} of the state environments is open_sesame."
    talk.answer = lambda _: Answer({"output": said, "error": None})
    with talk.client() as client:
        assert client.post("/v1/responses", json={"model": "m"}).json()["output"] == said
        talk.answer = lambda _: response_events({"type": "error", "message": f"bad key {secret}"})
        shown = client.post("/v1/responses", json={"model": "m", "stream": True}).text
    assert "bad key" in shown
    assert secret not in shown


@pytest.mark.parametrize(("code", "status"), [(500, 502), (401, 502), (429, 503), (400, 422)])
def test_what_the_provider_refuses_of_a_passed_body_is_a_problem(talks, code, status):
    talk = talks()
    talk.answer = lambda _: error_answer(code, f"no {SECRETS['admin']}")
    with talk.client() as client:
        for stream in (False, True):
            refused = client.post("/v1/embeddings", json={"model": "e", "stream": stream})
            assert refused.status_code == status
            assert SECRETS["admin"] not in refused.text


# -- kill -9


class ServedProcess:
    """``convergence serve --chat`` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        command = [
            *(sys.executable, "-m", "convergence", "serve", "--chat", "--no-ui", "--port", "0"),
            *("--rate", "0", "--max-usd", "1000", "--token", "TALK=chat,update,admin,select"),
        ]
        path = os.pathsep.join(sys.path)
        environ = {
            **os.environ, "PYTHONPATH": path, "TALK": SECRETS["admin"], "COLUMNS": "400"
        }  # fmt: skip
        self.process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, text=True, env=environ
        )
        assert self.process.stdout is not None
        line = next(line for line in self.process.stdout if "http://" in line)
        self.url = "http://" + line.rpartition("http://")[2].strip()

    def client(self) -> httpx.Client:
        headers = {"Authorization": f"Bearer {SECRETS['admin']}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


@pytest.mark.slow
def test_a_kill_loses_no_paid_answer_from_the_ledger_and_no_reward_counts_twice(tmp_path):
    """The process is killed while a paid answer is on its way to it, beside seven others."""
    served: list[ServedProcess] = []
    n_answers, at = 0, threading.Lock()

    def answer(_: Request) -> Answer:
        nonlocal n_answers
        with at:
            n_answers += 1
            if n_answers == 40:
                served[-1].kill()
        return chat_answer("yes")

    with LoopbackServer(answer) as provider:
        made = mapping(
            api=chat_api(provider.url), prices=PRICES, storage={"path": "store"},
            search_space__parameters={
                "temperature": {"type": "float", "min": 0, "max": 1, "default": 0.5}
            },
        )  # fmt: skip
        (tmp_path / "optimization.yaml").write_text(yaml.safe_dump(made))
        served.append(ServedProcess(tmp_path))
        with served[-1].client() as client:
            for n in range(2):
                client.put(
                    f"/v1/systems/system/arms/a{n}", json={"params": {"temperature": n / 4}}
                )
            first = client.post(COMPLETIONS, json=SHORT).json()
        reward = {"user_id": "ada", "decision_id": first["decision_id"], "reward": 1.0}

        def hammer(_: int) -> list[str]:
            answered: list[str] = []
            with served[0].client() as client, contextlib.suppress(httpx.HTTPError):
                while True:
                    client.post("/v1/systems/system/update", json=reward)
                    answered.append(client.post(COMPLETIONS, json=SHORT).json()["id"])
            return answered

        with ThreadPoolExecutor(8) as pool:
            answered = [one for ids in pool.map(hammer, range(8)) for one in ids]
        ledger = totals(tmp_path / "store")
        n_paid = len(provider.requests)
        assert ledger.n_done + ledger.n_in_flight + ledger.n_failed == ledger.n_attempts >= n_paid
        assert ledger.n_done >= 1 + len(answered)
        least = ledger.n_done * COST_USD + (n_paid - ledger.n_done) * 0.2
        assert (ledger.cost_usd or 0.0) + ledger.maybe_usd >= least - 1e-9
        with FeedbackStore(tmp_path / "store") as feedback:
            logged = {answer.interaction_id for answer, _ in feedback.history("ada", n=1_000)}
        assert {first["id"], *answered} <= logged

        served.append(ServedProcess(tmp_path))
        try:
            with served[-1].client() as client:
                repeated = client.post("/v1/systems/system/update", json=reward).json()
                arms = client.get("/v1/systems/system/arms").json()["arms"]
                assert client.post(COMPLETIONS, json=SHORT).status_code == 200
        finally:
            served[-1].kill()
    assert repeated["status"] == "duplicate"
    assert sum(arm["n"] for arm in arms) == 1
