"""Adapters that answer for the roles of a chat.

An adapter is loaded before its first answer. The server unloads it when no role uses it and no
request here waits for it. If another process's request comes after that, it repeats the selection
(``tasks.chat.logged_chat``).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from convergence_core.errors import InfrastructureFault, StoreError
from convergence_core.feedback.adapter_records import AdapterRecord
from convergence_core.feedback.live_test_records import LiveAnswer
from convergence_core.records import Json
from tasks.http.authentication import request_headers
from tasks.http.clients import ClientSettings
from tasks.inputs.loader import Loaded
from tasks.models.adapters import AdapterBackend, LocalAdapters, adapter_fault, backend_of
from tasks.models.files import find_model
from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import Secrets, one_line
from tasks.store.feedback.adapter_store import AdapterStore
from tasks.store.feedback.feedback_store import FeedbackStore

_LOGGER: Final = logging.getLogger(__name__)
_PROBE_S: Final = 120.0
"""Maximum seconds of the first answer with an adapter."""
_CONNECTIONS: Final = 16


class RoleAdapters:
    """Adapters of roles, and the request fields that select them; for one event loop.

    Args:
        loaded: Configuration of a chat kind.
        feedback: Store with the adapters.
        secrets: Source of keys, read on use.
        model: Model that answers unless an arm chooses another.
    """

    def __init__(
        self, loaded: Loaded, feedback: FeedbackStore, secrets: Secrets, *, model: str
    ) -> None:
        self._loaded, self._secrets, self._model = loaded, secrets, model
        training = loaded.configuration.feedback.training
        self._base_model = training.base_model_path or model
        self._store = AdapterStore(feedback)
        self._is_local = loaded.configuration.api.kind == "local"
        self._lock = asyncio.Lock()
        self._backend: AdapterBackend | None = None
        self._has_looked = False
        self._ready: set[str] = set()
        self._n_in_flight: Counter[str] = Counter()
        self._releases: set[asyncio.Task[None]] = set()

    def active(self, role: str) -> AdapterRecord | None:
        """Return a role's adapter for the configured model; ``None`` for the base model.

        Blocks.
        """
        adapter = self._store.active(role)
        return adapter if adapter is not None and adapter.base_model == self._base_model else None

    def answering(
        self, role: str, user_id: str, conversation: str
    ) -> tuple[AdapterRecord | None, LiveAnswer | None]:
        """Return the adapter of a conversation, and the answer's part in a test. Blocks.

        See ``AdapterStore.answering``; an adapter of another base model never answers.
        """
        record, part = self._store.answering(role, user_id, conversation)
        if part is not None and self.active(role) is None:
            return None, None
        if record is not None and record.base_model != self._base_model:
            return None, None
        return record, part

    @asynccontextmanager
    async def fields_for(
        self, record: AdapterRecord | None, *, model: str
    ) -> AsyncIterator[Mapping[str, Json]]:
        """Yield the request fields that select an adapter, or none, and keep it loaded meanwhile.

        Args:
            record: Adapter; ``None`` for the base model.
            model: Requested model.

        Raises:
            InfrastructureFault: the adapter does not answer, or the server is unreachable.
        """
        version = "" if record is None else record.version
        self._n_in_flight[version] += 1
        try:
            yield await self._fields(record, model=model)
        finally:
            self._n_in_flight[version] -= 1
            if self._ready - {version}:
                task = asyncio.create_task(self._release())
                self._releases.add(task)
                task.add_done_callback(self._releases.discard)

    async def _release(self) -> None:
        """Unload adapters that no role uses; failures are retried later."""
        try:
            answering = await asyncio.to_thread(self._store.answering_versions)
            async with self._lock:
                for version in sorted(self._ready - answering):
                    if self._backend is not None and not self._n_in_flight[version]:
                        await self._backend.unload(version)
                        self._ready.discard(version)
        except (InfrastructureFault, StoreError) as error:
            message = one_line(str(error), 1_000, redacted_text)
            _LOGGER.warning("An inactive adapter stays loaded: %s", message)

    async def _fields(self, record: AdapterRecord | None, *, model: str) -> Mapping[str, Json]:
        if model != self._model:
            return {}
        if record is None:
            if self._is_local or not await asyncio.to_thread(self._has_any):
                return {}
            backend = await self._backend_or_none()
            return {} if backend is None else await backend.fields(None, None)
        version, folder = record.version, self._store.folder(record.version).resolve()
        backend = await self._backend_or_none()
        if backend is None:
            problem_text = (
                "is active, and the server that answers must be vLLM or llama.cpp's to use it"
            )
            raise adapter_fault(version, problem_text)
        if version not in self._ready:
            async with self._lock:
                if version not in self._ready:
                    try:
                        problem = await asyncio.to_thread(self._store.files_problem, record)
                    except StoreError as error:
                        raise adapter_fault(version, f"cannot be fetched: {error}") from error
                    if problem is not None:
                        problem_text = (
                            f"cannot answer with files that were not registered: {problem}"
                        )
                        raise adapter_fault(version, problem_text)
                    await backend.load(version, folder)
                    self._ready.add(version)
        return await backend.fields(version, folder)

    def lose(self, version: str) -> None:
        """Record that a server lost an adapter, so that its next answer reloads it."""
        self._ready.discard(version)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        await asyncio.gather(*self._releases)
        if self._backend is not None:
            await self._backend.aclose()

    def _has_any(self) -> bool:
        return any(record.base_model == self._base_model for record in self._store.records())

    async def _backend_or_none(self) -> AdapterBackend | None:
        """Return the backend for adapters; ``None`` if the provider has none."""
        if not self._has_looked:
            async with self._lock:
                if not self._has_looked:
                    self._backend = await self._look()
                    self._has_looked = True
        return self._backend

    async def _look(self) -> AdapterBackend | None:
        api = self._loaded.configuration.api
        if self._is_local:
            key = "api.request.options.model"
            files = find_model(self._model, self._loaded.base_dir, key=key)
            return LocalAdapters(files, _PROBE_S)
        if api.kind != "openai" or api.endpoint is None:
            return None
        return await backend_of(
            api.endpoint,
            lambda: request_headers(api, self._secrets),
            ClientSettings(timeout_s=_PROBE_S, n_connections=_CONNECTIONS),
            model=self._model,
        )
