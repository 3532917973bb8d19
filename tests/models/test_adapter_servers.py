"""Adapters of vLLM and llama.cpp, spoken to in their documented forms."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from convergence_core.errors import InfrastructureFault
from tasks.models.adapters import AdapterBackend, LlamaCppAdapters, VllmAdapters, backend_of
from tests.models.adapter_servers import BASE, LlamaCppServer, VllmServer
from tests.support.http_server import Answer, LoopbackServer

Result = TypeVar("Result")


def served(
    answer: Any, use: Callable[[AdapterBackend, LoopbackServer], Awaitable[Result]], **more: Any
) -> Result:
    """Use the adapters of a server in a loop of their own."""

    async def go(server: LoopbackServer) -> Result:
        backend = await backend_of(f"{server.url}/v1", model=BASE, **more)
        assert backend is not None
        try:
            return await use(backend, server)
        finally:
            await backend.aclose()

    with LoopbackServer(answer) as server:
        return asyncio.run(go(server))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "assistant-0001"
    made.mkdir()
    (made / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    return made


def test_vllm_loads_an_adapter_under_its_version_and_answers_with_it(folder: Path):
    server = VllmServer()

    async def use(backend: AdapterBackend, _: LoopbackServer) -> list[Any]:
        assert isinstance(backend, VllmAdapters)
        await backend.load("assistant-0001", folder)
        await backend.load("assistant-0001", folder)  # it is there
        loaded = dict(server.adapters)
        fields = [await backend.fields("assistant-0001", folder), await backend.fields(None, None)]
        await backend.unload("assistant-0001")
        await backend.unload("assistant-0001")
        return [loaded, *fields, dict(server.adapters)]

    assert served(server, use) == [
        {"assistant-0001": str(folder)}, {"model": "assistant-0001"}, {}, {}
    ]  # fmt: skip


def test_two_processes_that_load_one_version_share_it(folder: Path):
    server = VllmServer()

    async def use(backend: AdapterBackend, _: LoopbackServer) -> None:
        await asyncio.gather(*(backend.load("assistant-0001", folder) for _ in range(5)))

    served(server, use)
    assert server.adapters == {"assistant-0001": str(folder)}


def refused(server: Any, folder: Path, **more: Any) -> str:
    async def use(backend: AdapterBackend, _: LoopbackServer) -> None:
        await backend.load("assistant-0001", folder)

    with pytest.raises(InfrastructureFault) as caught:
        served(server, use, **more)
    assert caught.value.error_type == "adapter"
    return str(caught.value)


def test_a_version_that_is_loaded_from_elsewhere_is_refused(folder: Path):
    server = VllmServer()
    server.adapters["assistant-0001"] = "/elsewhere/assistant-0001"
    told = refused(server, folder)
    assert "/elsewhere/assistant-0001" in told
    assert "never used twice" in told
    assert server.adapters == {"assistant-0001": "/elsewhere/assistant-0001"}


def test_an_adapter_that_is_loaded_and_does_not_answer_is_not_ready(folder: Path):
    server = VllmServer()
    server.fails_chat = True
    assert "does not answer: HTTP 500: CUDA error" in refused(server, folder)


def test_keys_are_sent_and_are_in_no_message(folder: Path):
    server = VllmServer(key="key-of-a-server-1")
    headers = {"Authorization": "Bearer key-of-a-server-1"}

    async def use(backend: AdapterBackend, _: LoopbackServer) -> None:
        await backend.load("assistant-0001", folder)

    served(server, use, headers=lambda: headers)
    assert server.adapters
    served_key = "wrong-key-of-a-server-2"

    def answer(request: Any) -> Answer:
        if request.path == "/v1/load_lora_adapter":
            return Answer(
                {"error": {"message": f"no: {request.headers['authorization']} " * 40}}, 401
            )
        return VllmServer()(request)

    told = refused(answer, folder, headers=lambda: {"Authorization": f"Bearer {served_key}"})
    assert "HTTP 401: no:" in told
    assert served_key not in told
    assert len(told) < 600


def test_llama_cpp_scales_its_own_adapters_and_lists_each(folder: Path):
    server = LlamaCppServer("/a/assistant-0001.gguf", "C:\\b\\assistant-0002\\lora.gguf")

    async def use(backend: AdapterBackend, at: LoopbackServer) -> list[Any]:
        assert isinstance(backend, LlamaCppAdapters)
        await backend.load("assistant-0001", folder)
        await backend.unload("assistant-0001")
        found = []
        for version in ("assistant-0001", "assistant-0002", None):
            fields = await backend.fields(version, folder)
            answer = await backend._probe("x", fields)  # as a chat asks
            found.append((fields, answer["choices"][0]["message"]["content"]))
        return found

    assert served(server, use) == [
        ({"lora": [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 0.0}]}, "base+assistant-0001"),
        ({"lora": [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 1.0}]}, "base+lora"),
        ({"lora": [{"id": 0, "scale": 0.0}, {"id": 1, "scale": 0.0}]}, "base"),
    ]


@pytest.mark.parametrize(
    "body", [None, [], {"data": [{"id": "x", "owned_by": "openai"}]}, {"data": 3}, b"<html>"]
)
def test_other_servers_have_no_adapters(body: Any):
    async def go(server: LoopbackServer) -> AdapterBackend | None:
        return await backend_of(f"{server.url}/v1")

    with LoopbackServer(lambda request: Answer(body)) as server:
        assert asyncio.run(go(server)) is None
