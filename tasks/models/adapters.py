"""Servers of a model with LoRA adapters: this machine, vLLM, llama.cpp.

Checked against vLLM's documentation of dynamic LoRA and its ``openai/models/serving.py``, and
against the README of llama.cpp's server. The code avoids two of their traps. vLLM may serve cached
blocks of an earlier adapter of the same name (its issue 42125), so a name is a version and is
never reused. llama.cpp keeps the scale of an adapter that a request does not list (its issue
28674), so each request lists all adapters.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import httpx

from convergence_core.errors import InfrastructureFault
from convergence_core.records import Json
from tasks.http.clients import ClientSettings, HttpClient
from tasks.http.faults import bare
from tasks.models.files import LOCAL_MODELS, LocalModel, ModelFiles, ModelProcessError
from tasks.models.requests import ChatRequest
from tasks.secrets.redaction import Redactor, one_line

ERROR_TYPE: Final = "adapter"
"""Error type of faults of an adapter that does not answer."""
PROBE: Final = "Hello"
"""Prompt that tests a new adapter."""
_MIN_SECRET: Final = 8
"""Minimum length of a header value that is redacted as a key."""
_QUOTED: Final = 300
"""Maximum length of a server's message in an error."""


class AdapterBackend(ABC):
    """Server whose adapters are selected per request."""

    @abstractmethod
    async def load(self, version: str, folder: Path) -> None:
        """Load an adapter and check that the server answers with it.

        Raises:
            InfrastructureFault: it does not answer; the message gives the reason.
        """

    async def unload(self, version: str) -> None:  # noqa: B027 - servers that keep all need none
        """Unload an adapter; does nothing if it is not loaded.

        Raises:
            InfrastructureFault: the server refuses, or does not answer.
        """

    @abstractmethod
    async def fields(self, version: str | None, folder: Path | None) -> dict[str, Json]:
        """Return the request fields that select an adapter.

        Args:
            version: Version of the adapter; ``None`` selects the base model.
            folder: Folder of the adapter.

        Raises:
            InfrastructureFault: the server has no such adapter, or does not answer.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""


def adapter_fault(version: str, reason: str) -> InfrastructureFault:
    """Return the fault for an adapter that does not answer."""
    return InfrastructureFault(f"the adapter {version} {reason}", error_type=ERROR_TYPE)


class LocalAdapters(AdapterBackend):
    """Adapters of a model that this process runs.

    Args:
        files: Files of the model.
        timeout_s: Time-out of the probe, from the start of its batch.
    """

    def __init__(self, files: ModelFiles, timeout_s: float) -> None:
        self._files, self._timeout_s = files, timeout_s
        self._model: LocalModel | None = None

    async def load(self, version: str, folder: Path) -> None:
        """See ``AdapterBackend.load``."""
        if self._model is None:
            self._model = LOCAL_MODELS.open(
                self._files
            )  # stays open: loading weights takes seconds
        try:
            message = {"role": "user", "content": PROBE}
            request = ChatRequest(messages=(message,), max_tokens=1, adapter=folder)
            answer = await asyncio.wrap_future(self._model.ask(request, self._timeout_s))
        except ModelProcessError as error:
            raise adapter_fault(version, f"does not answer: {error}") from None
        if answer.finish_reason == "adapter":
            raise InfrastructureFault(answer.error, error_type=ERROR_TYPE)
        if answer.finish_reason not in ("stop", "length"):
            reason = answer.error or answer.finish_reason
            raise adapter_fault(version, f"does not answer: {reason}")

    async def fields(self, version: str | None, folder: Path | None) -> dict[str, Json]:  # noqa: ARG002 - of the base
        """See ``AdapterBackend.fields``."""
        return {} if folder is None else {"adapter": str(folder)}

    async def aclose(self) -> None:
        """Release the model; its last user ends the process."""
        model, self._model = self._model, None
        if model is not None:
            await asyncio.to_thread(LOCAL_MODELS.close, self._files)


class _Server:
    """OpenAI-compatible server with adapters.

    Args:
        base_url: Base URL for chats, ending in ``/v1``.
        headers: Called for each request, so that a key is read when it is used.
        client: Limits of each request.
        model: Name of the base model in requests.
    """

    def __init__(
        self,
        base_url: str,
        headers: Callable[[], Mapping[str, str]] = dict,
        client: ClientSettings | None = None,
        *,
        model: str = "",
    ) -> None:
        self._base = base_url.rstrip("/").removesuffix("/chat/completions")
        self._root = self._base.removesuffix("/v1")
        self._headers, self._model = headers, model
        self._client = HttpClient(client or ClientSettings())

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await self._client.aclose()

    async def _send(self, method: str, url: str, body: Json = None) -> httpx.Response:
        headers = {**self._headers()}
        try:
            async with self._client.exchange(method, url, headers=headers, json=body) as (
                answer,
                _,
            ):
                await answer.aread()
                return answer
        except InfrastructureFault as fault:
            raise InfrastructureFault(str(fault), error_type=ERROR_TYPE) from None

    def _words(self, response: httpx.Response) -> str:
        """Return the server's message about a failure, shortened and without the keys sent."""
        value = _json(response)
        error = value.get("error", value) if isinstance(value, dict) else value
        message = error.get("message", error) if isinstance(error, dict) else error
        text = (
            message
            if isinstance(message, str)
            else json.dumps(message)
            if message
            else response.text
        )
        sent = [word for header in self._headers().values() for word in (header, *header.split())]
        redact = Redactor(values=[word for word in sent if len(word) >= _MIN_SECRET])
        return f"HTTP {response.status_code}: {one_line(text, _QUOTED, redact)}"

    async def _probe(self, version: str, fields: Mapping[str, Json]) -> dict[str, Any]:
        """Return a complete answer given with an adapter."""
        message: Json = {"role": "user", "content": PROBE}
        body: Json = {"model": self._model, "messages": [message], "max_tokens": 1, **fields}
        response = await self._send("POST", f"{self._base}/chat/completions", body)
        answer = _json(response)
        if response.status_code != 200 or not isinstance(answer, dict) or "choices" not in answer:
            raise adapter_fault(version, f"is loaded and does not answer: {self._words(response)}")
        return answer


class VllmAdapters(_Server, AdapterBackend):
    """Adapters of a vLLM server, which reads them from its own file system; see ``_Server``."""

    async def load(self, version: str, folder: Path) -> None:
        """See ``AdapterBackend.load``; the server must see the folder under the same path."""
        path = str(folder)
        adapter_id = (await self._loaded()).get(version)
        if adapter_id is None:
            body: Json = {"lora_name": version, "lora_path": path}
            response = await self._send("POST", f"{self._base}/load_lora_adapter", body)
            if response.status_code == 400:  # another process may have been first
                adapter_id = (await self._loaded()).get(version)
            if adapter_id is None and response.status_code != 200:
                raise adapter_fault(version, self._refusal(response, path))
        if adapter_id is not None and adapter_id != path:
            reason = f"is loaded from {adapter_id}, and must be from {path}: a version is never used twice"
            raise adapter_fault(version, reason)
        answer = await self._probe(version, {"model": version})
        if answer.get("model") != version:
            reason = f"was requested, and {answer.get('model')!r} answered"
            raise adapter_fault(version, reason)

    async def unload(self, version: str) -> None:
        """See ``AdapterBackend.unload``."""
        body: Json = {"lora_name": version}
        response = await self._send("POST", f"{self._base}/unload_lora_adapter", body)
        if response.status_code != 200 and version in await self._loaded():
            raise adapter_fault(version, f"is not unloaded: {self._words(response)}")

    async def fields(self, version: str | None, folder: Path | None) -> dict[str, Json]:  # noqa: ARG002 - of the base
        """See ``AdapterBackend.fields``."""
        return {} if version is None else {"model": version}

    async def _loaded(self) -> dict[str, str]:
        """Return the server's adapters, each with the path from which it was read."""
        response = await self._send("GET", f"{self._base}/models")
        return {
            str(entry["id"]): str(entry.get("root"))
            for entry in _listed(_json(response))
            if entry.get("parent") is not None
        }

    def _refusal(self, response: httpx.Response, path: str) -> str:
        words = self._words(response)
        if response.status_code in (404, 405) and "adapter" not in words.lower():
            return (
                "cannot be loaded: the server has no such endpoint. Start vLLM with `--enable-lora` "
                "and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            )
        return f"was refused by the server, which reads {path} on its own machine: {words}"


class LlamaCppAdapters(_Server, AdapterBackend):
    """Adapters with which a llama.cpp server was started; see ``_Server``.

    That server cannot load more. The name of an adapter's file, or of its folder, is the version.
    """

    async def load(self, version: str, folder: Path) -> None:
        """See ``AdapterBackend.load``."""
        fields = await self.fields(version, folder)
        await self._probe(version, fields)

    async def fields(self, version: str | None, folder: Path | None) -> dict[str, Json]:
        """See ``AdapterBackend.fields``; not cached: a restarted server renumbers adapters."""
        response = await self._send("GET", f"{self._root}/lora-adapters")
        listed = _json(response)
        if response.status_code != 200 or not isinstance(listed, list):
            reason = f"{bare(self._root)} lists no adapters: {self._words(response)}"
            raise InfrastructureFault(reason, error_type=ERROR_TYPE)
        scales: list[Json] = []
        is_there = False
        for entry in (entry for entry in listed if isinstance(entry, dict)):
            path = PurePosixPath(str(entry.get("path", "")).replace("\\", "/"))
            is_own = version is not None and version in (path.stem, path.parent.name)
            is_there |= is_own
            scales.append({"id": entry.get("id"), "scale": 1.0 if is_own else 0.0})
        if version is not None and not is_there:
            reason = (
                "is not one that llama-server started with, and it cannot load one later. Make a GGUF "
                f"file with `convert_lora_to_gguf.py {folder} --outfile {version}.gguf`, and start "
                f"it again with `--lora {version}.gguf --lora-init-without-apply`"
            )
            raise adapter_fault(version, reason)
        return {"lora": scales} if scales else {}


async def backend_of(
    base_url: str,
    headers: Callable[[], Mapping[str, str]] = dict,
    client: ClientSettings | None = None,
    *,
    model: str = "",
) -> AdapterBackend | None:
    """Return the adapters of an OpenAI-compatible server; ``None`` if not vLLM or llama.cpp.

    The server's list of models identifies it.

    Args:
        base_url: Base URL, ending in ``/v1``.
        headers: Returns the headers of each request.
        client: Limits of each request.
        model: Name of the base model in requests.

    Raises:
        InfrastructureFault: the server does not answer.
    """
    server = _Server(base_url, headers, client, model=model)
    try:
        response = await server._send("GET", f"{server._base}/models")
    finally:
        await server.aclose()
    owners = {str(entry.get("owned_by")).lower() for entry in _listed(_json(response))}
    if "vllm" in owners:
        return VllmAdapters(base_url, headers, client, model=model)
    if "llamacpp" in owners:
        return LlamaCppAdapters(base_url, headers, client, model=model)
    return None


def _json(response: httpx.Response) -> Any:
    """Return the value of a body; ``None`` if it is not JSON."""
    try:
        return response.json()
    except (ValueError, RecursionError):
        return None


def _listed(value: Any) -> list[dict[str, Any]]:
    """Return the entries of a list in OpenAI's format."""
    data = value.get("data") if isinstance(value, dict) else None
    return [entry for entry in data if isinstance(entry, dict)] if isinstance(data, list) else []
