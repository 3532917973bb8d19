"""The official OpenAI client against a served system: only base URL and model change."""

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from convergence.client import Client
from tasks.serving.settings import RuntimeArm, RuntimeConfig
from tasks.serving.systems import Systems
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.service.conftest import SECRETS
from tests.service.test_chat import Talk
from tests.support.chat_servers import chunk, echo, events, tool_calls
from tests.support.http_server import Answer, Request, chat_answer, error_answer

MODEL = "convergence/system"
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
ASKED: Any = {"role": "user", "content": "Rain in Ulm?"}
CALLS: Any = tool_calls(("weather", {"city": "Ulm"}))
DECISION_ID = "x-convergence-decision-id"


@pytest.fixture
def talk(store: RuntimeStore) -> Iterator[Talk]:
    with ExitStack() as stack:
        yield Talk(store, stack)


@pytest.fixture
def client(talk: Talk) -> Iterator[openai.OpenAI]:
    key = SECRETS["admin"]
    with openai.OpenAI(base_url=f"{talk.url}/v1", api_key=key, max_retries=0) as opened:
        yield opened


def offer(store: RuntimeStore, *params: dict[str, Any], **settings: Any) -> Systems:
    """Put arms on offer, the first with the best prior."""
    arms = tuple(
        RuntimeArm(arm_id=f"arm{n}", params=given, prior_mean=0.9 - n / 10, prior_sd=0.01)
        for n, given in enumerate(params)
    )
    systems = Systems(store)
    systems.configure(RuntimeConfig(system="system", default_arms=arms, seed=1, **settings))
    return systems


def sent(talk: Talk) -> Any:
    return talk.provider.requests[-1].body


def test_an_arm_answers_by_its_own_settings_and_a_reward_by_the_decision_id_teaches_it(
    talk, client, store
):
    systems = offer(store, {"model": "cheap", "temperature": 0.25})
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[ASKED], user="ada", metadata={"tier": "gold"}
    )
    answer = raw.parse()
    decision_id = raw.headers[DECISION_ID]
    assert answer.decision_id == decision_id
    assert (sent(talk)["model"], sent(talk)["temperature"]) == ("cheap", 0.25)
    assert sent(talk)["messages"] == [ASKED]  # no persona
    stored = store.decision(decision_id)
    assert json.loads(stored.context_json)["tier"] == "gold"
    with Client(talk.url, token=SECRETS["admin"]) as rewards:
        outcome = rewards.update("system", user_id="ada", decision_id=decision_id, reward=1.0)
    assert (outcome.status, systems.arms("system")[0].n) == ("ok", 1)


def test_tools_go_to_the_provider_and_their_calls_and_results_come_back(talk, client):
    talk.answer = lambda _: chat_answer(None, tool_calls=CALLS, finish_reason="tool_calls")
    form = {"type": "json_object"}
    answer = client.chat.completions.create(
        model=MODEL,
        messages=[ASKED],
        tools=[TOOL],
        tool_choice="auto",
        parallel_tool_calls=False,
        response_format=form,
    )
    (choice,) = answer.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", None)
    assert choice.message.model_dump()["tool_calls"] == CALLS
    fields = ("tools", "tool_choice", "parallel_tool_calls", "response_format")
    assert [sent(talk)[name] for name in fields] == [[TOOL], "auto", False, form]

    talk.answer = echo
    result: Any = {"role": "tool", "tool_call_id": "call_0", "content": "No."}
    asked = [ASKED, choice.message.model_dump(exclude_none=True), result]
    client.chat.completions.create(model=MODEL, messages=asked, tools=[TOOL], user="ada")
    assert sent(talk)["messages"] == [
        ASKED, {"role": "assistant", "content": None, "tool_calls": CALLS}, result
    ]  # fmt: skip
    ((kept, _),) = talk.feedback.history("ada")
    logged = [(message.role, message.content) for message in kept.messages]
    assert logged[0] == ("user", "Rain in Ulm?")
    assert json.loads(logged[1][1]) == {"tool_calls": CALLS}
    assert logged[2] == ("user", "No.")


def test_a_call_that_the_limit_cut_says_so(talk, client):
    part = {"index": 0, **CALLS[0]}
    talk.answer = lambda _: chat_answer(None, tool_calls=CALLS, finish_reason="length")
    whole = client.chat.completions.create(model=MODEL, messages=[ASKED], tools=[TOOL])
    assert whole.choices[0].finish_reason == "length"
    talk.answer = lambda _: events([chunk(tool_calls=[part]), chunk("length")])
    pieces = client.chat.completions.create(
        model=MODEL, messages=[ASKED], tools=[TOOL], stream=True
    )
    assert [*pieces][-1].choices[0].finish_reason == "length"


def test_a_stream_has_its_decision_id_in_the_header_and_its_tool_calls(talk, client, store):
    offer(store, {"temperature": 0.25})
    (call,) = CALLS
    begun = {"index": 0, **call, "function": {"name": "weather", "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": call["function"]["arguments"]}}
    pieces = [chunk(content="Well."), chunk(tool_calls=[begun]), chunk(tool_calls=[rest])]
    talk.answer = lambda _: events([*pieces, chunk("tool_calls")])
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[ASKED], tools=[TOOL], stream=True
    )
    chunks = list(raw.parse())
    assert {piece.decision_id for piece in chunks} == {raw.headers[DECISION_ID]}
    deltas = [piece.choices[0].delta for piece in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "Well."
    (called,) = [delta.tool_calls[0] for delta in deltas if delta.tool_calls]
    assert called.model_dump() == {"index": 0, **call}
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_an_image_goes_to_the_provider_and_its_kind_to_the_log(talk, client):
    image: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts: Any = [{"type": "text", "text": "What is it?"}, image]
    talk.answer = lambda _: chat_answer("A cat.")
    client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": parts}], user="ada"
    )
    assert sent(talk)["messages"][-1]["content"] == parts
    ((kept, _),) = talk.feedback.history("ada")
    assert kept.messages[-1].content == "What is it?[image_url]"


@pytest.mark.parametrize("stream", [False, True])
def test_the_best_arm_with_another_model_answers_for_one_whose_provider_fails(
    talk, client, store, stream
):
    systems = offer(
        store, {"model": "down", "temperature": 0.1}, {"model": "down"}, {"model": "up"}
    )

    def answer(request: Request) -> Answer:
        return error_answer(500) if request.body["model"] == "down" else echo(request)

    talk.answer = answer
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=[ASKED], user="ada", stream=stream
    )
    made = raw.parse()
    answers = list(made) if stream else [made]
    assert [(one.model, one.decision_id) for one in answers[:1]] == [("up", None)]
    assert DECISION_ID not in raw.headers
    assert [request.body["model"] for request in talk.provider.requests] == ["down", "up"]
    ((kept, _),) = talk.feedback.history("ada")
    assert kept.decision_id is None
    assert [arm.n for arm in systems.arms("system")] == [0, 0, 0]


def expire(store: RuntimeStore) -> None:
    """Let the windows of all decisions pass, and give what is missing its reward."""
    with store.database.transaction() as connection:
        connection.execute("UPDATE decisions SET expires_us = 1 WHERE expires_us > 1")
    store.reward_missing("system", 1)


@pytest.mark.parametrize(
    ("answers", "n_missing"),
    [
        ({"down": error_answer(500), "up": chat_answer("yes")}, 0),
        ({"down": error_answer(500), "up": error_answer(503)}, 0),
        ({"down": error_answer(400), "up": chat_answer("yes")}, 1),
        ({"down": chat_answer("yes"), "up": chat_answer("yes")}, 1),
    ],
    ids=["another arm answers", "none answers", "refused", "answered"],
)
def test_an_arm_whose_provider_fails_misses_no_reward(talk, client, store, answers, n_missing):
    systems = offer(
        store, {"model": "down"}, {"model": "up"}, expires_after_s=60, missing_reward=0.0
    )
    talk.answer = lambda request: answers[request.body["model"]]
    with contextlib.suppress(openai.APIStatusError):
        client.chat.completions.create(model=MODEL, messages=[ASKED])
    expire(store)
    assert [arm.n for arm in systems.arms("system")] == [n_missing, 0]


def test_no_other_arm_answers_for_one_that_refuses_or_when_all_fail(talk, client, store):
    offer(store, {"model": "a"}, {"model": "b"})
    for code, status, n_requests in ((400, 422, 1), (500, 502, 2)):
        talk.provider.requests.clear()
        talk.answer = lambda _, code=code: error_answer(code)
        with pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(model=MODEL, messages=[ASKED])
        assert (caught.value.status_code, len(talk.provider.requests)) == (status, n_requests)


def test_a_stream_that_breaks_after_its_first_piece_has_no_other_arm(talk, client, store):
    offer(store, {"model": "a"}, {"model": "b"})
    talk.answer = lambda _: events([chunk(content="half")], done=False)
    stream = client.chat.completions.create(model=MODEL, messages=[ASKED], stream=True)
    with pytest.raises(openai.APIError):
        list(stream)
    assert len(talk.provider.requests) == 1


@pytest.mark.parametrize("sticky", ["user", "session"])
def test_a_user_or_session_keeps_its_arm(talk, client, store, sticky):
    offer(store, {"temperature": 0.1}, {"temperature": 0.2}, sticky=sticky)
    temperatures = []
    for n in range(24):
        names = {"user": f"u{n % 12}", "metadata": {"conversation_id": f"c{n % 12}"}}
        client.chat.completions.create(model=MODEL, messages=[ASKED], **names)
        temperatures.append(sent(talk)["temperature"])
    assert temperatures[:12] == temperatures[12:]
    assert set(temperatures) == {0.1, 0.2}


@pytest.mark.parametrize("depth", [65, 250, 300, 900, 20_000])
def test_a_body_that_is_nested_too_deeply_is_refused(talk, depth):
    nested = "[" * depth + "]" * depth
    headers = {"content-type": "application/json"}
    bodies = (
        {"messages": [ASKED], "tools": ["deep"]},
        {"messages": [{**ASKED, "more": "deep"}]},
        {"messages": [{**ASKED, "tool_calls": [{"a": "deep"}]}]},
        {"messages": [{**ASKED, "content": [{"type": "x", "a": "deep"}]}]},
    )
    for body in bodies:
        text = json.dumps({"model": MODEL, **body}).replace('"deep"', nested)
        with talk.client() as http:
            answer = http.post("/v1/chat/completions", content=text, headers=headers)
        assert answer.status_code in {400, 422}
    assert talk.provider.requests == []


def test_the_models_list_names_the_system(client):
    assert MODEL in {model.id for model in client.models.list()}


NODE_SCRIPT = """
const { OpenAI } = require("openai");
const [baseURL, apiKey, asked] = process.argv.slice(1);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const request = JSON.parse(asked);
const main = async () => {
  const { data, response } = await client.chat.completions.create(request).withResponse();
  const streamed = await client.chat.completions.stream(request).finalChatCompletion();
  const { message } = data.choices[0];
  const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "No." };
  const messages = [...request.messages, message, result];
  let said = "";
  for await (const part of await client.chat.completions.create({ ...request, messages, stream: true })) {
    said += part.choices[0].delta.content ?? "";
  }
  const calls = [message.tool_calls, streamed.choices[0].message.tool_calls];
  console.log(JSON.stringify([response.headers.get("x-convergence-decision-id"), data.decision_id, calls, said]));
};
main();
"""
NODE = shutil.which("node")
NODE_MODULES = os.environ.get("NODE_PATH", "clients/typescript/node_modules")


@pytest.mark.slow
@pytest.mark.skipif(
    NODE is None or not Path(NODE_MODULES, "openai").is_dir(),
    reason="needs node and `npm install --no-save openai` in clients/typescript, or NODE_PATH",
)
def test_the_official_client_for_node_streams_and_calls_tools(talk, store):
    offer(store, {"temperature": 0.25})

    def answer(request: Request) -> Answer:
        if request.body["messages"][-1]["role"] == "tool":
            return echo(request)
        return chat_answer(None, tool_calls=CALLS, finish_reason="tool_calls")

    talk.answer = answer
    asked = json.dumps({"model": MODEL, "messages": [ASKED], "tools": [TOOL]})
    command = [str(NODE), "-e", NODE_SCRIPT, f"{talk.url}/v1", SECRETS["admin"], asked]
    environ = {**os.environ, "NODE_PATH": str(Path(NODE_MODULES).resolve())}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    header, decision_id, calls, said = json.loads(done.stdout)
    assert header == decision_id is not None
    whole, streamed = calls
    assert whole == CALLS
    assert [{k: v for k, v in call.items() if k != "index"} for call in streamed] == CALLS
    assert said == "3: No."
