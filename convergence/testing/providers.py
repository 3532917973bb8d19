"""Contract of a chat model that a package offers."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import ClassVar

from convergence.testing.contract import ServiceContract
from convergence.testing.requirements import HOSTILE_TEXTS, SECRET, brief, require
from convergence.testing.services import HOSTILE_ANSWERS
from convergence.testing.targets import BUGS
from convergence_core.errors import EvaluationFault, InfrastructureFault
from convergence_core.records import Json, canonical_json
from tasks.plugins.entry_points import PluginContext
from tasks.providers.answers import ChatCompletion
from tasks.providers.chat import ChatSettings
from tasks.providers.plugin_chat import PluginChat, make_plugin_chat

_N_AT_ONCE = 8


class ProviderContract(ServiceContract):
    """Every chat model must pass these tests; subclass it in a test module of the package.

    ``plugin`` is in the group ``convergence.providers``.
    """

    __test__ = False

    model: ClassVar[str] = "m"
    """Name of a model that answers."""
    settings: ClassVar[Mapping[str, Json]] = {"max_tokens": 16}
    """Settings of a request that gets an answer."""
    messages: ClassVar[Sequence[Mapping[str, Json]]] = ({"role": "user", "content": "hello"},)
    """Messages that get an answer."""

    def test_an_answer_has_text_a_raw_form_and_its_model(self) -> None:
        """The text is what counts; tokens are 0 or more, or unknown."""
        found = self._asked(self._made())
        require(isinstance(found, ChatCompletion), f"no answer, but {found!r}")
        assert isinstance(found, ChatCompletion)  # noqa: S101 - said above
        canonical_json(dict(found.raw))
        require(found.fault is None and found.text.strip(), "the answer has no text")
        require(bool(found.raw), "the answer has no `raw` form")

    def test_calls_at_once_all_get_their_answers(self) -> None:
        """A chat model is shared by all calls in flight."""
        chat = self._made()

        async def go() -> list[ChatCompletion]:
            try:
                return list(await asyncio.gather(*(self._send(chat) for _ in range(_N_AT_ONCE))))
            finally:
                await chat.aclose()

        found = asyncio.run(go())
        require(all(one.text.strip() for one in found), "an answer has no text")

    def test_a_hostile_message_is_answered_or_refused(self) -> None:
        """Texts of cases come from anywhere."""
        for text in HOSTILE_TEXTS:
            found = self._asked(self._made(), [{"role": "user", "content": text}])
            self._check_fault(found, brief(text))

    def test_a_hostile_answer_is_an_answer_or_a_fault(self) -> None:
        """What a broken service sends becomes data; 429 and 5xx are never the candidate's fault."""
        for answer in HOSTILE_ANSWERS:
            with self.answering(answer) as options:
                found = self._asked(self._made(options))
            self._check_fault(found, answer.name)
            if answer.status == 429 or answer.status >= 500:
                is_infrastructure = isinstance(found, InfrastructureFault)
                message = f"status {answer.status} became {found!r}, not an `InfrastructureFault`"
                require(is_infrastructure, message)

    def test_its_key_is_in_no_answer(self) -> None:
        """A key is read where a request is sent, and shown nowhere."""
        chat = self._made()
        require(SECRET not in chat.base_url, "the key of `secret()` is in its address")
        found = self._asked(chat)
        told = canonical_json(dict(found.raw)) if isinstance(found, ChatCompletion) else str(found)
        require(SECRET not in told, "the key of `secret()` is in its answer")

    def test_its_key_is_in_no_fault(self) -> None:
        """Also where the service refuses the key."""
        unauthorized = next(a for a in HOSTILE_ANSWERS if a.status == 401)
        with self.answering(unauthorized) as options:
            found = self._asked(self._made(options))
        told = f"{found} {getattr(found, 'details', '')}"
        require(SECRET not in told, "the key of `secret()` is in its fault")

    def _made(self, options: Mapping[str, Json] | None = None) -> PluginChat:
        context = PluginContext(
            name=self.plugin,
            options=self.options if options is None else options,
            timeout_s=self.timeout_s,
            n_workers=_N_AT_ONCE,
            secret=lambda: SECRET,
        )
        return make_plugin_chat(context, ChatSettings(provider="plugin_chat"))

    async def _send(
        self, chat: PluginChat, messages: Sequence[Mapping[str, Json]] | None = None
    ) -> ChatCompletion:
        asked = self.messages if messages is None else messages
        mapped = chat.mapped(asked, model=self.model, settings=self.settings)
        return await chat.send(mapped.body, model=self.model)

    def _asked(
        self, chat: PluginChat, messages: Sequence[Mapping[str, Json]] | None = None
    ) -> ChatCompletion | EvaluationFault:
        async def go() -> ChatCompletion | EvaluationFault:
            try:
                return await self._send(chat, messages)
            except EvaluationFault as fault:
                return fault
            finally:
                await chat.aclose()

        return asyncio.run(go())

    @staticmethod
    def _check_fault(found: ChatCompletion | EvaluationFault, what: str) -> None:
        if isinstance(found, EvaluationFault):
            require(str(found).strip(), f"{what}: the fault has no message")
            is_bug = found.error_type in BUGS
            require(not is_bug, f"{what}: the plugin raised {found.error_type}: {found}")
