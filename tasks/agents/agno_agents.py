"""Agno's agents: models under a run's limits, and tools that do not write.

Imports Agno, which is an extra: only ``tasks.targets.agno`` imports this, when it is needed.
"""

import asyncio
import inspect
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from agno.exceptions import ModelProviderError
from agno.metrics import MessageMetrics
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.run.cancel import get_cancellation_manager
from agno.tools import Toolkit
from agno.tools.function import FunctionCall

from convergence_core.errors import CandidateFault, EvaluationFault
from convergence_core.records import Json, Params, Reply
from tasks.agents.agent_run import AgentRun, dry_run_result, writes
from tasks.json_values import mapping, mappings
from tasks.secrets.redaction import Secrets

# Before Agno is loaded: it would tell its makers of each run.
os.environ["AGNO_TELEMETRY"] = "false"


# What goes wrong is in the evaluation's error; the log would stand between the lines of the command.
for _name in ("agno", "agno-team", "agno-workflow"):
    logging.getLogger(_name).addFilter(lambda _: False)


class _LockOfThreads:
    """A lock for tasks of any event loop, held without an ``await``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()


# All agents of a process share it, each with a loop of its own: an ``asyncio.Lock`` is bound to the
# first loop that waits for it, raises in all others, and wakes no task of theirs.
if hasattr(get_cancellation_manager(), "_async_lock"):
    get_cancellation_manager()._async_lock = _LockOfThreads()

_THOUGHTS_OF = "model"
"""Key of a message's provider data: the model whose thoughts it holds; no other is sent them."""
_AGNO_TOOLS = (
    "agno.agent",
    "agno.team",
    "agno.memory",
    "agno.culture",
    "agno.learn",
    "agno.reasoning",
)
"""Modules of tools by which Agno's parts speak with each other: they change nothing outside."""


@dataclass(slots=True, eq=False, kw_only=True)
class AgentContext:
    """What a factory of agents is given: ``make(params, context)``."""

    params: Params
    """The candidate's."""
    allow_writes: bool
    """``api.agent.allow_writes``."""
    _run: AgentRun
    _secrets: Secrets

    def model(self, name: str | None = None, **options: Json) -> Model:
        """Return a model for an agent, a team, a memory; its calls are those of the run.

        Args:
            name: e.g. ``gpt-4o-mini``, ``groq/llama-3.3-70b-versatile``; ``None``: the parameter ``model``.
            options: fields of the request, e.g. ``temperature``; ``max_tokens`` is 1024 unless written.

        Raises:
            CandidateFault: no model is named.
        """
        model = self.params.get("model") if name is None else name
        if not isinstance(model, str) or not model:
            raise CandidateFault(
                'no model is named: write `context.model("…")`, or a parameter `model`',
                error_type="no_model",
            )
        return RunModel(id=model, name="RunModel", run=self._run, options=options)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Names of ``api.agent.secrets``: what ``secret`` gives."""
        return tuple(self._run.config.secrets)

    def rewrite(self, old: str, new: str) -> None:
        """Let models see one text in place of another in messages, e.g. in place of an address with a port.

        Requests with the port of this process would be others after a resume, and be paid for again.
        """
        before = self._run.rewrite
        self._run.rewrite = lambda text: before(text).replace(old, new)

    def secret(self, name: str) -> str:
        """Return the value of an environment variable of ``api.agent.secrets``.

        Raises:
            ConfigurationError: it is not set.
            CandidateFault: the configuration does not list it.
        """
        if name not in self._run.config.secrets:
            raise CandidateFault(
                f"context.secret({name!r}) must name a variable of api.agent.secrets. Add it there.",
                error_type="unknown_secret",
            )
        return self._secrets.get(name, key="api.agent.secrets").get_secret_value()


@dataclass
class RunModel(Model):
    """A chat model whose calls are limited, priced and journaled by the run that it belongs to."""

    run: AgentRun | None = None
    options: Mapping[str, Json] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the model itself: it has no state but the run's."""
        return self

    def invoke(self, messages: list[Message], **settings: Any) -> ModelResponse:
        """Ask once, and block."""
        reply = self._ask(messages, settings)
        with self._provider_errors():
            return self._read(reply.result())

    async def ainvoke(self, messages: list[Message], **settings: Any) -> ModelResponse:
        """Ask once."""
        reply = self._ask(messages, settings)
        with self._provider_errors():
            return self._read(await asyncio.wrap_future(reply))

    def invoke_stream(self, messages: list[Message], **settings: Any) -> Iterator[ModelResponse]:
        """Ask once; the answer comes as one part."""
        yield self.invoke(messages, **settings)

    async def ainvoke_stream(
        self, messages: list[Message], **settings: Any
    ) -> AsyncIterator[ModelResponse]:
        """Ask once; the answer comes as one part."""
        yield await self.ainvoke(messages, **settings)

    def get_function_calls_to_run(self, *args: Any, **kwargs: Any) -> list[FunctionCall]:
        """Return the calls of tools, those that would write replaced: each way to a tool is by here."""
        calls = super().get_function_calls_to_run(*args, **kwargs)
        return [self._guarded(call) for call in calls]

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return self._read(response)

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return self._read(response)

    # -- asking

    def _read(self, reply: Reply) -> ModelResponse:
        message, usage = mapping(reply.value), reply.usage
        thoughts = message.get("thoughts")
        return ModelResponse(
            role="assistant",
            content=message.get("content") or "",
            tool_calls=[dict(call) for call in mappings(message.get("tool_calls"))],
            provider_data={_THOUGHTS_OF: self.id, "thoughts": thoughts} if thoughts else None,
            response_usage=MessageMetrics(
                input_tokens=usage.prompt_tokens or 0,
                output_tokens=usage.completion_tokens or 0,
                total_tokens=usage.total or 0,
                cost=reply.cost_usd,
            ),
        )

    def _ask(self, messages: Sequence[Message], settings: Mapping[str, Any]) -> "Future[Reply]":
        assert self.run is not None  # noqa: S101 - made by a context
        compressed = bool(settings.get("compress_tool_results"))
        options: dict[str, Json] = {**self.options}
        if settings.get("tools"):
            options["tools"] = settings["tools"]
            if settings.get("tool_choice") is not None:
                options["tool_choice"] = settings["tool_choice"]
        if isinstance(settings.get("response_format"), dict):
            options["response_format"] = settings["response_format"]
        shown = [_sent(message, self.id, compressed=compressed) for message in messages]
        return self.run.ask(self.id, shown, options)

    @contextmanager
    def _provider_errors(self) -> Iterator[None]:
        """End the agent by a fault: after this status, Agno asks no second time."""
        try:
            yield
        except EvaluationFault as fault:
            raise ModelProviderError(
                message=str(fault), status_code=400, model_id=self.id
            ) from fault

    # -- tools

    def _guarded(self, call: FunctionCall) -> FunctionCall:
        run, function = self.run, call.function
        assert run is not None  # noqa: S101 - made by a context
        entrypoint = function.entrypoint
        plain = inspect.unwrap(entrypoint) if callable(entrypoint) else entrypoint
        is_agnos = str(getattr(plain, "__module__", "")).startswith(_AGNO_TOOLS)
        if run.config.allow_writes or is_agnos:
            return call
        owner = getattr(entrypoint, "__self__", None) or getattr(plain, "__self__", None)
        kind = type(owner).__name__ if isinstance(owner, Toolkit) else None
        if not writes(function.name, toolkit=kind, more=run.config.writing_tools):
            return call
        run.note_dry(call.call_id)
        name = function.name

        def dry_run(**arguments: Any) -> str:
            return dry_run_result(name, arguments)

        instead = function.model_copy()
        instead.tool_hooks = instead.pre_hook = instead.post_hook = None
        instead.cache_results = instead.requires_confirmation = False
        instead.requires_user_input = instead.external_execution = False
        instead.entrypoint = dry_run
        return FunctionCall(function=instead, arguments=call.arguments, call_id=call.call_id)


def _sent(message: Message, model: str, *, compressed: bool) -> dict[str, Json]:
    """Return a message in OpenAI's form, for a model; its own thoughts are with it.

    Raises:
        CandidateFault: it holds what is no text.
    """
    if message.images or message.audio or message.videos or message.files:
        raise CandidateFault(
            "a message of the agent holds pictures, sound or files; only text is sent",
            error_type="no_text",
        )
    content = message.get_content(use_compressed_content=compressed)
    if content is not None and not isinstance(content, str):
        content = message.get_content_string()
    sent: dict[str, Json] = {"role": message.role, "content": content or ""}
    if message.tool_call_id:
        sent["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        sent["tool_calls"] = [dict(call) for call in message.tool_calls]
    provider_data = message.provider_data or {}
    if provider_data.get(_THOUGHTS_OF) == model:
        sent.update(provider_data["thoughts"])
    return sent


# -- a run


def run_agent(
    factory: Callable[..., Any],
    run: AgentRun,
    *,
    params: Params,
    text: str,
    secrets: Secrets,
) -> object:
    """Make an agent, let it answer, and return the answer's content; blocks this thread.

    Raises:
        CandidateFault: it is none of Agno's, asks models of its own, or did not come to an end.
    """
    context = AgentContext(
        params=params, allow_writes=run.config.allow_writes, _run=run, _secrets=secrets
    )
    try:
        run.begin()
        agent = factory(params, context)
        check_agent(agent)
        loop = asyncio.new_event_loop()
        loop.set_default_executor(_DaemonThreads())
        task = loop.create_task(agent.arun(input=text, stream=False))
        run.on_close = lambda: _cancel(loop, task)
        try:
            output = loop.run_until_complete(task)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
        status = str(getattr(output.status, "value", output.status)).lower()
        if status != "completed":
            raise CandidateFault(
                f"the agent's run ended as {status}: {output.content}",
                error_type=f"agent_{status}",
            )
        return output.content
    except EvaluationFault as fault:
        run.fault = run.fault or fault
        raise


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    with suppress(RuntimeError):  # the loop is closed: the run has ended
        loop.call_soon_threadsafe(task.cancel)


class _DaemonThreads(ThreadPoolExecutor):
    """A thread for each tool that blocks, so that one that hangs keeps no process alive."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        # From here on no one cancels it: a tool that outlives its run still sets its result.
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                future.set_exception(error)

        threading.Thread(target=work, name="agent-tool", daemon=True).start()
        return future


def check_agent(agent: object) -> None:
    """Check that a factory made something of Agno's, all of whose models are the run's.

    Raises:
        CandidateFault: it did not.
    """
    if not _is_agnos(agent):
        raise CandidateFault(
            f"the factory returned a {type(agent).__name__}, not an Agent, Team or Workflow of Agno",
            error_type="no_agent",
        )
    for part in _parts(agent, set()):
        if isinstance(part, Model) and not isinstance(part, RunModel):
            raise CandidateFault(
                f"the agent brings its own model ({type(part).__name__} {part.id!r}), whose calls no "
                "limit would see. Make each model by `context.model(…)`.",
                error_type="foreign_model",
            )
        if getattr(part, "model", part) is None and hasattr(part, "arun"):
            raise CandidateFault(
                f"the {type(part).__name__} has no model. Write `model=context.model(…)`.",
                error_type="no_model",
            )


def _is_agnos(outer: object) -> bool:
    """Return whether an object is of Agno, or of a user's subclass of it."""
    return type(outer).__module__.startswith("agno.") or hasattr(outer, "arun")


def _parts(outer: object, seen: set[int]) -> Iterator[object]:
    """Yield an object of Agno's and all that it is made of."""
    if id(outer) in seen:
        return
    seen.add(id(outer))
    if isinstance(outer, Mapping):
        values: list[object] = [*outer.values()]
    elif isinstance(outer, (list, tuple, set)):
        values = [*outer]
    elif isinstance(outer, Model) or _is_agnos(outer):
        yield outer
        values = [] if isinstance(outer, RunModel) else [*getattr(outer, "__dict__", {}).values()]
    else:
        return
    for value in values:
        yield from _parts(value, seen)
