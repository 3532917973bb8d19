"""Agno's agents: models under a run's limits, and tools that do not write.

Imports Agno, which is an extra; only ``tasks.targets.agno`` imports this module, when needed.
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

# Set before Agno loads, which otherwise reports each run to its makers.
os.environ["AGNO_TELEMETRY"] = "false"


# The evaluation's error holds every failure; log lines would mix with the command's output.
for _name in ("agno", "agno-team", "agno-workflow"):
    logging.getLogger(_name).addFilter(lambda _: False)


class _LockOfThreads:
    """Lock for tasks of any event loop, held without an ``await``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(self, *error: object) -> None:
        self._lock.release()


# All agents of a process share the lock, each with its own loop. An ``asyncio.Lock`` is bound to
# the first loop that waits for it, raises in all others, and wakes none of their tasks.
if hasattr(get_cancellation_manager(), "_async_lock"):
    get_cancellation_manager()._async_lock = _LockOfThreads()

_THOUGHTS_OF = "model"
"""Key of provider data for the model that a message's thoughts belong to; no other model gets
them.
"""
_AGNO_TOOLS = (
    "agno.agent",
    "agno.team",
    "agno.memory",
    "agno.culture",
    "agno.learn",
    "agno.reasoning",
)
"""Modules of Agno's internal tools, which change nothing outside."""


@dataclass(slots=True, eq=False, kw_only=True)
class AgentContext:
    """Argument of an agent factory: ``make(params, context)``."""

    params: Params
    """Candidate's parameters."""
    allow_writes: bool
    """``api.agent.allow_writes``."""
    _run: AgentRun
    _secrets: Secrets

    def model(self, name: str | None = None, **options: Json) -> Model:
        """Return a model for an agent, team or memory; its calls belong to the run.

        Args:
            name: Model name, e.g. ``gpt-4o-mini``, ``groq/llama-3.3-70b-versatile``; ``None``
                means the parameter ``model``.
            options: Request fields, e.g. ``temperature``; ``max_tokens`` defaults to 1024.

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
        """Names in ``api.agent.secrets``, which ``secret`` accepts."""
        return tuple(self._run.config.secrets)

    def rewrite(self, old: str, new: str) -> None:
        """Replace a text in all messages to models, e.g. an address with a port.

        Otherwise requests with this process's port would differ after a resume and be paid again.
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
    """Chat model whose calls its run limits, prices and records."""

    run: AgentRun | None = None
    options: Mapping[str, Json] = field(default_factory=dict)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the model itself, because its only state is the run's."""
        return self

    def invoke(self, messages: list[Message], **settings: Any) -> ModelResponse:
        """Call the model once, blocking."""
        reply = self._ask(messages, settings)
        with self._provider_errors():
            return self._read(reply.result())

    async def ainvoke(self, messages: list[Message], **settings: Any) -> ModelResponse:
        """Call the model once."""
        reply = self._ask(messages, settings)
        with self._provider_errors():
            return self._read(await asyncio.wrap_future(reply))

    def invoke_stream(self, messages: list[Message], **settings: Any) -> Iterator[ModelResponse]:
        """Call the model once; the answer is one part."""
        yield self.invoke(messages, **settings)

    async def ainvoke_stream(
        self, messages: list[Message], **settings: Any
    ) -> AsyncIterator[ModelResponse]:
        """Call the model once; the answer is one part."""
        yield await self.ainvoke(messages, **settings)

    def get_function_calls_to_run(self, *args: Any, **kwargs: Any) -> list[FunctionCall]:
        """Return the tool calls with writing ones replaced; all tool calls pass through here."""
        calls = super().get_function_calls_to_run(*args, **kwargs)
        return [self._guarded(call) for call in calls]

    def _parse_provider_response(self, response: Any, **_: Any) -> ModelResponse:
        return self._read(response)

    def _parse_provider_response_delta(self, response: Any) -> ModelResponse:
        return self._read(response)

    # -- calls

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
        """End the agent on a fault: Agno does not retry after this status."""
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
    """Return a message in OpenAI's form, with the thoughts of the same model.

    Raises:
        CandidateFault: it contains more than text.
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
    """Make an agent, run it, and return the content of its answer; blocks this thread.

    Raises:
        CandidateFault: the agent is not Agno's, has its own models, or did not complete.
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
    with suppress(RuntimeError):  # the loop is closed because the run has ended
        loop.call_soon_threadsafe(task.cancel)


class _DaemonThreads(ThreadPoolExecutor):
    """Executor with one daemon thread per blocking tool.

    A hung tool thus cannot keep the process alive.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        # This prevents cancellation: a tool that outlives its run still sets its result.
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                future.set_result(fn(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - passed on to the waiter
                future.set_exception(error)

        threading.Thread(target=work, name="agent-tool", daemon=True).start()
        return future


def check_agent(agent: object) -> None:
    """Check that a factory's result is Agno's and uses only the run's models.

    Raises:
        CandidateFault: it does not.
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
    """Return whether an object is Agno's, or of a user's subclass."""
    return type(outer).__module__.startswith("agno.") or hasattr(outer, "arun")


def _parts(outer: object, seen: set[int]) -> Iterator[object]:
    """Yield an Agno object and all its parts."""
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
