"""Chat completions in OpenAI's form: logged before they end, under their id; whole and streamed."""

import asyncio
import http.client
import json
import secrets
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest

from convergence.client import Client, ServiceRefusedError
from convergence.service.server import Service, ServiceOptions
from convergence_core.budget.prices import PriceTable
from convergence_core.records import sha256_hex
from tasks.chat.logged_chat import LoggedChat
from tasks.chat.paid_answers import PaidAnswers
from tasks.inputs.environment import Environment
from tasks.secrets.redaction import Secrets
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.service.conftest import SECRETS, all_tokens
from tests.support.chat_servers import USAGE_CHUNK, chunk, echo, events
from tests.support.configurations import chat_api, loaded
from tests.support.http_server import Answer, LoopbackServer, Request, chat_answer, error_answer

HI = {"model": "assistant", "messages": [{"role": "user", "content": "Hi?"}], "user": "ada"}
COMPLETIONS = "/v1/chat/completions"


TEMPERATURE: Any = {"temperature": {"type": "float", "min": 0, "max": 1, "default": 0.5}}
JUDGE: Any = {"type": "llm_judge", "mode": "rating", "rubric": "Short."}


class Talk:
    """A service with a chat, its provider on loopback, and clients of it."""

    def __init__(
        self,
        store: RuntimeStore,
        stack: ExitStack,
        max_usd: float | None = None,
        judge_share: float = 0.0,
        **sections: Any,
    ) -> None:
        self.answer: Callable[[Request], Answer] = echo
        self.provider = stack.enter_context(LoopbackServer(lambda one: self.answer(one)))  # noqa: PLW0108
        self.feedback = stack.enter_context(FeedbackStore(store.root))
        if judge_share:
            llm = {"model": "openai/judge", "endpoint": self.provider.url}
            sections |= {"llm": llm, "evaluation__metrics": {"quality": {**JUDGE, "weight": 1.0}}}
        made = loaded(
            api=chat_api(self.provider.url),
            search_space__parameters=TEMPERATURE,
            feedback={"roles": {"pirate": "Arr."}},
            **sections,
        )
        prices = PriceTable(version="2026-01-01").with_overrides(made.configuration.prices)
        environment = Environment(secrets=Secrets({}), prices=prices)
        paid = PaidAnswers.of(made, store.root, max_usd=max_usd)
        chat = LoggedChat(made, environment, self.feedback, store, paid, judge_share=judge_share)
        self.service = Service(store, all_tokens(), ServiceOptions(port=0, grace_s=1), chat=chat)
        self.url = stack.enter_context(self.service).url

    def end(self) -> None:
        """End the service; what is in flight comes to its end."""
        self.service.__exit__()

    def client(self, scope: str = "admin") -> httpx.Client:
        bearer = {"Authorization": f"Bearer {SECRETS[scope]}"}
        return httpx.Client(base_url=self.url, headers=bearer, timeout=60)

    def post(self, body: Any, scope: str = "admin") -> httpx.Response:
        with self.client(scope) as client:
            kind = {"content-type": "application/json"}
            return client.post(COMPLETIONS, content=json.dumps(body), headers=kind)

    def wait_for_answers(self, n: int) -> None:
        """Return when the service is done with so many completions, however they ended."""
        with self.client() as client:
            while n_counted(client.get("/metrics").text) < n:
                pass

    @contextmanager
    def streamed(self, body: Any) -> Iterator[httpx.Response]:
        with (
            self.client() as client,
            client.stream("POST", COMPLETIONS, json={**body, "stream": True}) as got,
        ):
            yield got


@pytest.fixture
def talk(store: RuntimeStore) -> Iterator[Talk]:
    with ExitStack() as stack:
        yield Talk(store, stack)


def n_counted(metrics: str) -> float:
    lines = [one for one in metrics.splitlines() if one.startswith("convergence_requests_total{")]
    return sum(float(one.split()[-1]) for one in lines if f'"{COMPLETIONS}"' in one)


def data_of(answer: httpx.Response) -> list[Any]:
    """The data of every event, the last one as text."""
    lines = [line[6:] for line in answer.iter_lines() if line]
    return [json.loads(line) for line in lines[:-1]] + lines[-1:]


def test_a_whole_answer_has_the_documented_form_and_is_logged_under_its_id(talk):
    answer = talk.post({**HI, "metadata": {"conversation_id": "c1"}})
    assert answer.status_code == 200
    got = answer.json()
    assert got["id"] == answer.headers["X-Interaction-Id"]
    assert got["created"] > 1_700_000_000
    assert {name: got[name] for name in ("object", "model", "choices", "usage")} == {
        "object": "chat.completion",
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "2: Hi?", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
    ((logged, _),) = talk.feedback.history("ada")
    assert (logged.interaction_id, logged.source) == (got["id"], "openai")
    assert (logged.response, logged.role, logged.conversation_id) == ("2: Hi?", "assistant", "c1")


def test_the_parts_of_the_tokens_that_the_provider_tells_are_told(talk):
    answer = chat_answer("Hi.")
    answer.body["usage"] |= {
        "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    talk.answer = lambda _: answer
    assert talk.post(HI).json()["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }


def test_a_stream_has_the_documented_form_and_is_logged_before_its_end(talk):
    with talk.streamed({**HI, "stream_options": {"include_usage": True}}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        *chunks, done = data_of(answer)
        identity = answer.headers["X-Interaction-Id"]
    assert done == "[DONE]"
    assert {(one["id"], one["object"], one["model"]) for one in chunks} == {
        (identity, "chat.completion.chunk", "m")
    }
    choices = [one["choices"][0] for one in chunks[:-1]]
    assert [one["delta"] for one in choices] == [
        {"role": "assistant", "content": "2:"}, {"content": " Hi?"}, {},
    ]  # fmt: skip
    assert [one["finish_reason"] for one in choices] == [None, None, "stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 10
    assert talk.feedback.interaction(identity).response == "2: Hi?"


@pytest.mark.parametrize("text", ["<think>\nhm\n</think>\n\nArr.", "hm\n</think>\n\nArr."])
def test_thinking_is_logged_and_never_delivered(talk, text):
    talk.answer = lambda _: chat_answer(text)
    assert talk.post(HI).json()["choices"][0]["message"]["content"] == "Arr."
    pieces = [chunk(content=text[i : i + 3]) for i in range(0, len(text), 3)]
    talk.answer = lambda _: events([*pieces, chunk("stop")])
    with talk.streamed({**HI, "model": "assistant"}) as answer:
        got = data_of(answer)[:-1]
    content = "".join(one["choices"][0]["delta"].get("content", "") for one in got)
    assert content == "Arr."
    for kept, _ in talk.feedback.history("ada"):
        assert (kept.response, kept.thinking) == ("Arr.", "hm")
        assert kept.logprobs is None


FAILURES = {500: 502, 401: 502, 429: 503, 400: 422}
"""Status of the provider → that of the service."""
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "function", "content": "x"}]}, "role"),
    ({"messages": [{"role": "user"}]}, "`content` must be given"),
    ({"messages": [{"role": "system", "content": [{"type": "image_url"}]}]}, "must be text"),
    ({"messages": [{"role": "assistant", "content": "x"}]}, "of role `user` or `tool`"),
    ({"functions": [{"name": "f"}]}, "`functions` must be left out"),
    ({"audio": {"voice": "x"}, "temprature": 1}, "`audio` must be left out"),
    ({"temprature": 1}, "`temprature` must be left out"),
    ({"metadata": {"conversation_id": 1.5}}, "must be printable"),
    ({"metadata": {"tags": ["a"]}}, "metadata"),
    ({"n": 2}, "`n` must be left out"),
    ({"logprobs": True}, "`logprobs` must be left out"),
    ({"temperature": "hot"}, "temperature"),
    ({"user": ""}, "user"),
    ({"user": " ada "}, "without leading or trailing blanks"),
    ({"metadata": {"conversation_id": ""}}, "without leading or trailing blanks"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "surrogate"),
    ({"tools": [{"type": "function", "function": {"name": "\ud800"}}]}, "surrogate"),
    ({"tools": [float("nan")]}, "JSON"),
]


def test_what_is_not_served_is_refused_by_name_before_anyone_is_asked(talk):
    for more, words in REFUSED:
        answer = talk.post({**HI, **more})
        assert answer.status_code == 422, more
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.json()["error"]["message"]
    assert talk.provider.requests == []


def test_what_the_provider_fails_with_is_a_problem_and_not_logged(talk):
    """It is down, refuses the key, is busy, refuses the request, or answers nothing."""
    failures = [(error_answer(code), status) for code, status in FAILURES.items()]
    failures += [(events([chunk("stop")]), 502), (events([chunk("stop"), USAGE_CHUNK]), 422)]
    for answer, status in failures:
        talk.answer = lambda _, answer=answer: answer
        for stream in (False, True):
            got = talk.post({**HI, "stream": stream})
            assert (got.status_code, got.json()["status"]) == (status, status)
            assert got.json()["detail"].startswith("The model gave no answer: ")
    assert talk.feedback.history("ada") == []


@pytest.mark.parametrize(("code", "status"), [(429, 503), (503, 502)])
def test_the_pause_that_the_provider_asks_for_is_handed_on(talk, code, status):
    talk.answer = lambda _: error_answer(code, retry_after="17")
    got = talk.post(HI)
    assert (got.status_code, got.headers["retry-after"]) == (status, "17")


def test_older_forms_of_messages_are_sent_in_those_of_today(talk):
    function = {"name": "rain", "arguments": "{}"}
    older = [
        {"role": "assistant", "content": None, "refusal": "I may not."},
        {"role": "assistant", "content": None, "function_call": function},
        {"role": "function", "name": "rain", "content": "no"},
    ]
    assert talk.post({**HI, "messages": [*HI["messages"], *older]}).status_code == 200
    call_id = f"call_{sha256_hex('rain')[:24]}"
    call = {"id": call_id, "type": "function", "function": function}
    assert talk.provider.requests[-1].body["messages"][-3:] == [
        {"role": "assistant", "content": "I may not."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "no", "tool_call_id": call_id},
    ]


def test_why_the_provider_refuses_a_request_is_told(talk):
    talk.answer = lambda _: error_answer(400, "`top_k` is unknown")
    assert "`top_k` is unknown" in talk.post(HI).json()["detail"]


def test_a_stream_that_breaks_ends_with_an_error_and_without_done(talk):
    talk.answer = lambda _: events([chunk(content="half an ans")], done=False)
    with talk.streamed(HI) as answer:
        lines = [line[6:] for line in answer.iter_lines() if line]
    assert json.loads(lines[0])["choices"][0]["delta"]["content"] == "half an ans"
    assert json.loads(lines[-1])["error"]["type"] == "upstream_error"
    assert talk.feedback.history("ada") == []


def test_an_answer_whose_client_goes_away_is_cancelled_and_not_logged(talk):
    asked, let_go = threading.Event(), threading.Event()

    def slow(_request: Request) -> Answer:
        asked.set()
        let_go.wait(30)
        return events([chunk(content="late"), chunk("stop")])

    talk.answer = slow
    host, _, port = talk.url.removeprefix("http://").partition(":")
    headers = {
        "Authorization": f"Bearer {SECRETS['admin']}",
        "Content-Type": "application/json",
    }
    for n, stream in enumerate((False, True), start=1):
        asked.clear()
        connection = http.client.HTTPConnection(host, int(port))
        connection.request("POST", COMPLETIONS, json.dumps({**HI, "stream": stream}), headers)
        assert asked.wait(60)
        connection.close()
        talk.wait_for_answers(n)
    let_go.set()
    talk.answer = echo
    assert talk.post({**HI, "user": "bob"}).status_code == 200
    assert talk.feedback.history("ada") == []
    assert len(talk.feedback.history("bob")) == 1


def test_eight_clients_at_once_get_their_own_answers(talk):
    def ask(n: int) -> list[str]:
        found = []
        for k in range(5):
            body = {
                **HI,
                "user": f"user{n}",
                "messages": [{"role": "user", "content": f"{n}.{k}"}],
            }
            if k % 2:
                with talk.streamed(body) as answer:
                    *chunks, done = data_of(answer)
                assert done == "[DONE]"
                texts = [one["choices"][0]["delta"].get("content", "") for one in chunks]
                found.append("".join(texts))
            else:
                found.append(talk.post(body).json()["choices"][0]["message"]["content"])
        return found

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert answers == [[f"2: {n}.{k}" for k in range(5)] for n in range(8)]
    for n in range(8):
        logged = [kept.response for kept, _ in talk.feedback.history(f"user{n}")]
        assert logged == answers[n]


def test_a_rating_of_an_answer_rewards_the_arm_that_gave_it(talk, store):
    arms = tuple(RuntimeArm(arm_id=f"arm{n}", params={"temperature": n / 10}) for n in range(2))
    Systems(store).configure(RuntimeConfig(system="system", default_arms=arms, seed=1))
    identity = talk.post(HI).json()["id"]
    logged = talk.feedback.interaction(identity)
    with talk.client() as client:
        rated = client.post(
            f"/v1/interactions/{identity}/rating", json={"user_id": "ada", "rating": 4}
        )
        stranger = client.post(
            f"/v1/interactions/{identity}/rating",
            json={"user_id": "eve", "rating": 1},
            headers={"Authorization": f"Bearer {SECRETS['update']}"},
        )
    assert rated.status_code == 200
    assert stranger.status_code == 403
    assert store.decision(logged.decision_id).reward == 0.75


@pytest.mark.parametrize("begun", [None, False, True], ids=["whole", "stream", "begun stream"])
def test_an_answer_that_is_not_whole_when_the_service_ends_is_a_readable_error(
    talk, monkeypatch, begun
):
    asked = threading.Event()

    async def endless(
        _chat: LoggedChat, _prompt: Any, on_text: Callable[[str], object], on_fallback: object
    ) -> Any:
        del on_fallback
        if begun:
            on_text("well")
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(LoggedChat, "write", endless)
    with ThreadPoolExecutor(1) as pool:
        got = pool.submit(talk.post, {**HI, "stream": begun is not None})
        assert asked.wait(30)
        talk.service.stop()
        answer = got.result(60)
    assert answer.status_code == (200 if begun else 503)
    said = answer.text.rpartition("data: ")[2]
    assert json.loads(said)["error"]["message"].startswith("The service shut down")


GENERATE = "/v1/generate"


WRONG_PROMPTS: list[tuple[dict[str, Any], int, str]] = [
    ({"prompt": ""}, 422, "prompt"),
    ({"prompt": None}, 422, "prompt"),
    ({"prompt": "\ud800"}, 422, "unicode"),
    ({"prompt": "x" * 1_000_000}, 413, "bytes"),
    ({"role": "cook"}, 404, "`role` must name a role, and known are assistant, code"),
    ({"user": " ada"}, 422, "`user` must be printable"),
    ({"conversation_id": "a\u202eb"}, 422, "`conversation_id` must be printable"),
    ({"max_tokens": 0}, 422, "max_tokens"),
    ({"max_tokens": 1.5}, 422, "max_tokens"),
    ({"temperature": 1}, 422, "temperature"),
]


def test_a_prompt_that_breaks_a_rule_is_refused_before_anyone_is_asked(talk):
    kind = {"content-type": "application/json"}
    for more, status, words in WRONG_PROMPTS:
        with talk.client("chat") as client:
            body = json.dumps({"prompt": "Hi?", **more})
            answer = client.post(GENERATE, content=body, headers=kind)
        assert answer.status_code == status, more
        assert answer.headers["content-type"] == "application/problem+json"
        assert words in answer.text
    assert talk.provider.requests == []


def test_a_client_sends_no_prompt_again_of_which_it_heard_nothing():
    with (
        LoopbackServer(lambda _: Answer(hangs=True)) as server,
        Client(server.url, token=secrets.token_urlsafe(32)) as client,
        pytest.raises(ServiceRefusedError, match="no answer"),
    ):
        client.generate("Hi?", timeout_s=0.2)
    assert len(server.requests) == 1
