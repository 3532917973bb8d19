"""Provider of chat models on this machine; see ``tasks.models``."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from convergence_core.config import Configuration
from convergence_core.errors import CandidateFault, InfrastructureFault
from convergence_core.records import Json
from convergence_core.thought_tags import AnswerPieces, TextCallback
from tasks.json_values import as_text
from tasks.models.files import LOCAL_MODELS, LocalModel, ModelFiles, ModelProcessError, find_model
from tasks.models.requests import ChatAnswer, ChatRequest
from tasks.providers.answers import ChatCompletion, RawAnswer, read_chat
from tasks.providers.chat import WHOLE, ChatSettings, Delivery, Provider
from tasks.providers.fields import Mapped, settled

MAX_TOKENS: Final = 256
"""Default maximum tokens of an answer."""
_FIELDS: Final = frozenset(
    {
        *("max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "stop", "seed"),
        "logprobs",
    }
)
_ACCEPTED: Final[Mapping[str, Json]] = {"n": 1, "stream": False}
_NO_FIELD: Final = "a local model has no such setting"
_ROLES: Final = {"developer": "system"}

_DEFAULTS = ChatSettings(provider="local")


class LocalChat(Provider):
    """Models that this process runs; see ``Provider``.

    Args:
        base_dir: Base of relative paths of models.
        settings: Chat settings; only the time-out and the handling of settings and thinking apply.
    """

    def __init__(self, base_dir: Path, settings: ChatSettings = _DEFAULTS) -> None:
        super().__init__("", settings)
        self._base_dir = base_dir
        self._name_to_files: dict[str, ModelFiles] = {}
        self._name_to_fingerprint: dict[str, str] = {}
        self._opened: dict[ModelFiles, LocalModel] = {}

    def mapped(
        self, messages: Sequence[Mapping[str, Json]], *, model: str, settings: Mapping[str, Json]
    ) -> Mapped:
        """See ``Provider.mapped``; the defaults are temperature 0 and ``MAX_TOKENS``."""
        set_ = {name: value for name, value in settings.items() if value is not None}
        lacking = [
            (name, _NO_FIELD)
            for name, value in set_.items()
            if name not in _FIELDS and _ACCEPTED.get(name, object()) != value
        ]
        kept = {name: value for name, value in set_.items() if name in _FIELDS}
        limit = kept.pop("max_completion_tokens", kept.get("max_tokens", MAX_TOKENS))
        listed: list[Json] = [_message(message) for message in messages]
        body: dict[str, Json] = {"temperature": 0.0, **kept, "max_tokens": limit}
        return settled(
            {**body, "model": model, "messages": listed}, lacking, self._settings.unsupported
        )

    def address(self, model: str) -> dict[str, Json]:
        """Return the weights' fingerprint: other weights under the same name are another model."""
        if model not in self._name_to_fingerprint:
            self._name_to_fingerprint[model] = self._files(model).fingerprint()
        return {"weights": self._name_to_fingerprint[model]}

    async def send(
        self, body: Mapping[str, Json], *, model: str, delivery: Delivery = WHOLE
    ) -> ChatCompletion:
        """See ``Provider.send``; concurrent calls share a batch.

        The field ``adapter`` is the folder of the adapter that answers.
        """
        files = self._files(model)
        if files not in self._opened:
            self._opened[files] = LOCAL_MODELS.open(files)
        timeout_s, started_s = self._settings.client.timeout_s, time.monotonic()
        try:
            request = _request(body, stream=delivery.stream)
            on_text = delivery.on_text
            pieces = None if on_text is None else self._pieces(on_text, model)
            future = self._opened[files].ask(request, timeout_s, _receiver(pieces))
            answer = await asyncio.wrap_future(future)
        except ModelProcessError as error:
            kind = "timeout" if error.timed_out else "model_process_ended"
            raise InfrastructureFault(str(error), error_type=kind) from None
        _check(answer, timeout_s)
        usage: dict[str, Json] = {
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "total_tokens": answer.prompt_tokens + answer.completion_tokens,
        }
        message: Json = {"role": "assistant", "content": answer.text}
        choice: dict[str, Json] = {
            "index": 0, "message": message, "finish_reason": answer.finish_reason
        }  # fmt: skip
        if answer.logprobs is not None:
            choice["logprobs"] = {"content": [{"logprob": logprob} for logprob in answer.logprobs]}
        raw: dict[str, Json] = {"model": model, "choices": [choice], "usage": usage}
        latency_ms = answer.latency_ms or (time.monotonic() - started_s) * 1000
        whole = RawAnswer(raw, answer.first_token_ms, latency_ms)
        done = read_chat(whole, is_split=self._settings.separate_thinking)
        return self._noted(done, pieces, model)

    async def aclose(self) -> None:
        """Release the models; the last user of a model ends its process."""
        opened, self._opened = self._opened, {}
        for files in opened:
            await asyncio.to_thread(LOCAL_MODELS.close, files)
        await super().aclose()

    def _files(self, model: str) -> ModelFiles:
        if model not in self._name_to_files:
            key = "api.request.options.model"
            self._name_to_files[model] = find_model(model, self._base_dir, key=key)
        return self._name_to_files[model]


def _receiver(pieces: AnswerPieces | None) -> TextCallback | None:
    """Return a receiver that passes pieces from the model's thread to the waiting loop."""
    if pieces is None:
        return None
    loop = asyncio.get_running_loop()

    def receive(piece: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended and reads no more
            loop.call_soon_threadsafe(pieces.add, piece)

    return receive


def check_local_models(configuration: Configuration, base_dir: Path) -> None:
    """Check that the models of a configuration and the packages that run them are on this machine.

    Raises:
        ConfigurationError: names the commands that install what is missing.
    """
    from convergence_core.config import CategoricalParam  # noqa: PLC0415 - with its only user

    parameter = configuration.search_space.parameters.get("model")
    if isinstance(parameter, CategoricalParam):
        for choice in parameter.choices:
            find_model(str(choice), base_dir, key="search_space.parameters.model.choices")
        return
    name = configuration.api.request.options.get("model")
    if isinstance(name, str) and "{" not in name:
        find_model(name, base_dir, key="api.request.options.model")


def _message(message: Mapping[str, Json]) -> dict[str, Json]:
    content, role = message.get("content"), as_text(message.get("role", "user"))
    if not isinstance(content, str):
        raise CandidateFault("a local model reads text only", error_type="unsupported_content")
    return {"role": _ROLES.get(role, role), "content": content}


def _request(body: Mapping[str, Json], *, stream: bool) -> ChatRequest:
    """Convert a mapped body to a request.

    Raises:
        CandidateFault: a setting has an invalid value.
    """
    listed = body["messages"]
    assert isinstance(listed, list)  # noqa: S101 - made by ``mapped``
    messages = tuple(
        {"role": as_text(m["role"]), "content": as_text(m["content"])}
        for m in listed
        if isinstance(m, dict)
    )
    stop = body.get("stop", [])
    top_k, seed, adapter = body.get("top_k"), body.get("seed"), body.get("adapter")
    return ChatRequest(
        messages=messages,
        max_tokens=int(_number(body, "max_tokens", MAX_TOKENS, least=1)),
        temperature=_number(body, "temperature", 0.0, least=0.0),
        top_p=_number(body, "top_p", 1.0, least=0.0),
        top_k=None if top_k is None else int(_number(body, "top_k", 0, least=1)),
        stop=tuple(map(as_text, stop)) if isinstance(stop, list) else (as_text(stop),),
        seed=None if seed is None else int(_number(body, "seed", 0, least=0)),
        logprobs=body.get("logprobs") is True,
        adapter=None if adapter is None else Path(as_text(adapter)),
        stream=stream,
    )


def _number(body: Mapping[str, Json], name: str, default: float, *, least: float) -> float:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
        message = f"`{name}` must be a number from {least:g}, but is {value!r}"
        raise CandidateFault(message, error_type="bad_setting")
    return value


def _check(answer: ChatAnswer, timeout_s: float) -> None:
    """Raise the fault that an answer reports, if any."""
    if answer.finish_reason == "context":
        raise CandidateFault(answer.error, error_type="context_length")
    if answer.finish_reason == "template":
        message = f"the local model's template rejects these messages: {answer.error}"
        raise CandidateFault(message, error_type="bad_messages")
    if answer.finish_reason == "timeout":
        message = f"the local model took longer than api.request.timeout_seconds={timeout_s:g}"
        raise InfrastructureFault(message, error_type="timeout")
    if answer.finish_reason == "adapter":
        raise InfrastructureFault(answer.error, error_type="adapter")
    if answer.finish_reason == "error":
        raise InfrastructureFault(
            f"the local model failed: {answer.error}", error_type="model_error"
        )
