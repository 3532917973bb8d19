"""The active adapter of a role answers in a chat, and each answer tells which one did."""

import asyncio
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convergence_core.config.feedback import LiveTestConfig
from convergence_core.errors import InfrastructureFault
from convergence_core.feedback.records import Interaction
from tasks.chat.conversation import Conversation
from tasks.chat.logged_chat import ChatPrompt, LoggedChat
from tasks.store.feedback.adapter_store import AdapterStore
from tests.chat.conftest import Chats
from tests.feedback.adapters import PASSED, rated, saved_adapter
from tests.models.adapter_servers import BASE, LlamaCppServer, VllmServer
from tests.support.configurations import chat_api
from tests.support.http_server import Answer, Request


@pytest.fixture
def adapters(chats: Chats, tmp_path: Path) -> Callable[..., str]:
    """Return what registers and activates an adapter of a role, and returns its version."""
    store, mark = AdapterStore(chats.feedback), rated(chats.feedback, "a")

    def make(seed: int, *, base_model: str = BASE, role: str = "assistant") -> str:
        version = store.register(
            saved_adapter(tmp_path / str(seed), seed), role=role, base_model=base_model,
            objective="qrpo", marks=[mark],
        )  # fmt: skip
        store.record_checks(version, [PASSED])
        store.activate(version, "gate")
        return version

    return make


def talk(
    chats: Chats, use: Callable[[Callable[..., Any], LoggedChat], Any], **sections: Any
) -> Any:
    async def go(chat: LoggedChat) -> Any:
        async def ask(role: str = "assistant") -> Interaction:
            async with Conversation(chat, user_id="ada", role=role).ask("Hi?") as stream:
                async for _ in stream:
                    pass
            return stream.ending

        return await use(ask, chat)

    api = chat_api(f"{chats.server.url}/v1", request={"options": {"model": BASE}})
    return chats.run(go, api={**api}, **sections)


def labels(answers: list[Interaction]) -> list[tuple[str, str | None, str]]:
    return [(one.response, one.adapter_version, one.model) for one in answers]


def test_each_answer_of_vllm_is_the_adapters_that_was_active(chats: Chats, adapters: Any):
    chats.answer = server = VllmServer()
    store = AdapterStore(chats.feedback)

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        found = [await ask()]
        first = adapters(1)
        found.append(await ask())
        assert chat.active_versions() == {"assistant": first}
        second = adapters(2)
        found += await asyncio.gather(*(ask() for _ in range(5)), ask("code"))
        store.rollback("assistant", "ada")
        found.append(await ask())
        store.rollback("assistant", "ada")
        found.append(await ask())
        assert chat.active_versions() == {}
        assert second == "assistant-0002"
        return found

    one, two = "assistant-0001", "assistant-0002"
    assert labels(talk(chats, use)) == [
        (BASE, None, BASE), (one, one, BASE), *[(two, two, BASE)] * 5, (BASE, None, BASE),
        (one, one, BASE), (BASE, None, BASE),
    ]  # fmt: skip
    assert server.adapters == {}
    asked = [one.path for one in chats.server.requests]
    assert asked.count("/v1/load_lora_adapter") == 3
    assert asked.count("/v1/unload_lora_adapter") == 3
    ((kept, _), *_) = chats.feedback.history("ada", n=1)
    assert "adapter" not in json.dumps(kept.sampling)


def test_a_server_that_started_again_is_given_its_adapter_again(chats: Chats, adapters: Any):
    chats.answer = VllmServer()

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        adapters(1)
        found = [await ask()]
        chats.answer = VllmServer()
        return [*found, await ask()]

    assert labels(talk(chats, use)) == [("assistant-0001", "assistant-0001", BASE)] * 2


@pytest.mark.parametrize("is_probe", [True, False])
def test_an_adapter_that_is_taken_back_amid_a_request_leaves_it_to_the_one_before(
    chats: Chats, adapters: Any, is_probe: bool
):
    store, server = AdapterStore(chats.feedback), VllmServer()

    def answer(request: Request) -> Answer:
        body = request.body or {}
        is_asked = body.get("model") == "assistant-0002" and "assistant-0002" in server.adapters
        if is_asked and is_probe == ("temperature" not in body):
            store.rollback("assistant", "ada")
            del server.adapters["assistant-0002"]
        return server(request)

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        adapters(1)
        adapters(2)
        return [await ask(), await ask()]

    chats.answer = answer
    assert labels(talk(chats, use)) == [("assistant-0001", "assistant-0001", BASE)] * 2


def test_llama_cpp_answers_with_the_adapters_that_it_was_started_with(chats: Chats, adapters: Any):
    chats.answer = LlamaCppServer("/a/assistant-0001.gguf", "/a/assistant-0002.gguf")
    store = AdapterStore(chats.feedback)

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        adapters(1)
        found = [await ask(), await ask("code")]
        adapters(2)
        found.append(await ask())
        store.rollback("assistant", "ada")
        found.append(await ask())
        store.rollback("assistant", "ada")
        return [*found, await ask()]

    one, two = "assistant-0001", "assistant-0002"
    assert labels(talk(chats, use)) == [
        (f"base+{one}", one, BASE), ("base", None, BASE), (f"base+{two}", two, BASE),
        (f"base+{one}", one, BASE), ("base", None, BASE),
    ]  # fmt: skip


def test_a_provider_without_adapters_answers_until_one_is_active(chats: Chats, adapters: Any):
    def answer(request: Request) -> Answer:
        if request.path == "/v1/models":
            return Answer({"object": "list", "data": [{"id": BASE, "owned_by": "openai"}]})
        message = {"role": "assistant", "content": "hello"}
        return Answer({"model": BASE, "choices": [{"message": message, "finish_reason": "stop"}]})

    chats.answer = answer

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        found = [await ask()]
        assert [one.path for one in chats.server.requests] == ["/v1/chat/completions"]
        adapters(1)
        found.append(await ask("code"))
        with pytest.raises(InfrastructureFault, match=r"vLLM or llama\.cpp"):
            await ask()
        return found

    assert labels(talk(chats, use)) == [("hello", None, BASE)] * 2


def test_an_adapter_of_another_model_answers_nothing(chats: Chats, adapters: Any):
    chats.answer = VllmServer()

    async def use(ask: Any, chat: LoggedChat) -> Interaction:
        adapters(1, base_model="models/other")
        assert chat.active_versions() == {}
        return await ask()  # type: ignore[no-any-return]  # as above

    assert labels([talk(chats, use)]) == [(BASE, None, BASE)]
    # What is trained may have another name here than on the server.
    named = {"training": {"base_model_path": "models/other"}}
    answers = talk(chats, lambda ask, _: asyncio.gather(ask()), feedback=named)
    assert labels(answers) == [("assistant-0001", "assistant-0001", BASE)]


@pytest.mark.parametrize("harm", ["gone", "changed"])
def test_files_that_are_not_those_that_were_registered_answer_nothing(
    chats: Chats, adapters: Any, harm: str
):
    chats.answer = server = VllmServer()
    version = adapters(1)
    folder = AdapterStore(chats.feedback).folder(version)
    if harm == "gone":
        shutil.rmtree(folder)
    else:
        with (folder / "adapter_model.safetensors").open("ab") as file:
            file.write(b"x")
    with pytest.raises(InfrastructureFault, match="registered") as caught:
        talk(chats, lambda ask, _: ask())
    assert caught.value.error_type == "adapter"
    assert server.adapters == {}
    assert chats.feedback.history("ada") == []


def test_conversations_are_shared_while_a_new_adapter_is_tried_until_ratings_decide(
    chats: Chats, adapters: Any
):
    chats.answer = VllmServer()
    store, one, two = AdapterStore(chats.feedback), "assistant-0001", "assistant-0002"

    async def use(_: Any, chat: LoggedChat) -> list[list[Interaction]]:
        adapters(1)
        adapters(2)
        store.rollback("assistant", "ada")
        store.activate(two, "gate", live_rule=LiveTestConfig(share=0.5, max_ratings=100))
        found = []
        while chat.active_versions() == {"assistant": two}:
            talk = Conversation(chat, user_id="ada", role="assistant")
            answers = []
            for question in ("Hi?", "And you?"):
                async with talk.ask(question) as stream:
                    async for _piece in stream:
                        pass
                answers.append(stream.ending)
            found.append(answers)
            assert len({answer.adapter_version for answer in answers}) == 1
            await talk.rate(rating=1 if answers[0].adapter_version == two else 5)
        return found

    found = talk(chats, use)
    first = [answers[0] for answers in found]
    assert {answer.adapter_version for answer in first} == {one, two}
    assert all(answer.response == answer.adapter_version for pair in found for answer in pair)
    (test,) = store.live_tests()
    assert (test.status, test.n_ratings) == ("worse", len(found))
    assert store.record(two).status == "rolled_back"


def test_a_client_without_ids_keeps_its_side_in_one_conversation(chats: Chats, adapters: Any):
    chats.answer = VllmServer()
    store = AdapterStore(chats.feedback)

    async def use(_: Any, chat: LoggedChat) -> None:
        adapters(1)
        adapters(2)
        store.rollback("assistant", "ada")
        store.activate("assistant-0002", "gate", live_rule=LiveTestConfig())
        seen = set()
        for number in range(12):
            messages = [{"role": "user", "content": f"Question {number}?"}]
            versions = set()
            for _turn in range(2):
                prompt = ChatPrompt(
                    messages=tuple(messages), role="assistant", user_id="ada", source="openai"
                )
                answer = await chat.write(await chat.prepare(prompt), len)
                versions.add(answer.interaction.adapter_version)
                messages += [
                    {"role": "assistant", "content": answer.text},
                    {"role": "user", "content": "Go on."},
                ]
            assert len(versions) == 1
            seen |= versions
        assert seen == {"assistant-0001", "assistant-0002"}

    talk(chats, use)
    rows = chats.feedback.fetch("SELECT count(*), count(DISTINCT unit) FROM live_test_answers")
    assert rows == [(24, 12)]


def test_an_adapter_is_let_go_only_when_no_request_waits_for_it(chats: Chats, adapters: Any):
    server, store = VllmServer(), AdapterStore(chats.feedback)
    has_come, may_answer = threading.Event(), threading.Event()
    order: list[str] = []

    def answer(request: Request) -> Answer:
        body = request.body or {}
        if body.get("model") == "assistant-0001" and "temperature" in body:  # no probe
            has_come.set()
            assert may_answer.wait(60)
            order.append("answered")
        elif request.path == "/v1/unload_lora_adapter":
            order.append("unloaded")
        return server(request)

    async def use(ask: Any, chat: LoggedChat) -> list[Interaction]:
        adapters(1)
        waiting = asyncio.create_task(ask())
        assert await asyncio.to_thread(has_come.wait, 60)
        store.rollback("assistant", "ada")
        others = [await ask() for _ in range(3)]
        may_answer.set()
        return [await waiting, *others, await ask()]

    chats.answer = answer
    found = talk(chats, use)
    assert [one.adapter_version for one in found] == ["assistant-0001", None, None, None, None]
    assert order == ["answered", "unloaded"]
    assert server.adapters == {}
