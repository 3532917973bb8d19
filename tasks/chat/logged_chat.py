"""Chat model of a configuration, with every answer logged for its rating.

A role's active adapter answers if the requested model is its base. Each answer is logged with the
adapter's version.

If the configuration's system has active arms, one answers with its parameters, and the answer's
rating rewards the decision. Otherwise the champion or the defaults answer. If an arm's provider
fails, the best arm with another model answers. That arm was not sampled, so its answer has no
decision. The first arm's decision becomes void, as does one whose call the daily limit rejects.
"""

import asyncio
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

from convergence_core.bandit.features import last_text
from convergence_core.budget.prices import provider_of
from convergence_core.config.api import CHAT_KINDS
from convergence_core.errors import (
    ConfigurationError,
    EvaluationFault,
    EvaluatorFault,
    InfrastructureFault,
    NoArmsError,
)
from convergence_core.feedback.adapter_records import AdapterRecord
from convergence_core.feedback.live_test_records import LiveAnswer
from convergence_core.feedback.records import ROLES, ChatMessage, Interaction
from convergence_core.feedback.roles import BUILT_IN, persona_of
from convergence_core.records import Case, Json, Params, Reply, Usage, fields_of, sha256_hex
from convergence_core.thought_tags import TextCallback
from tasks.calls.metric_calls import PaidCall
from tasks.chat.judged_answers import JudgedAnswers
from tasks.chat.paid_answers import MOST_AT_ONCE, PaidAnswers
from tasks.chat.role_adapters import RoleAdapters
from tasks.inputs.environment import Environment
from tasks.inputs.loader import Loaded
from tasks.json_values import as_text, mapping, mappings
from tasks.models.adapters import ERROR_TYPE
from tasks.providers.answers import ChatCompletion, called_tools
from tasks.providers.streams import EventCallback
from tasks.run.adoption import champion_now
from tasks.serving.answers import Selection
from tasks.serving.operations import performed
from tasks.serving.rated_answers import send_rewards
from tasks.serving.systems import Systems
from tasks.store.clock import wall_clock_us
from tasks.store.feedback.feedback_store import FeedbackStore, new_interaction_id
from tasks.store.feedback.schema import checked_name
from tasks.store.in_flight import RequestsInFlight
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.targets.chat import ChatTarget

CONTEXT_TOKENS: Final = 8_192
"""Context tokens of a model whose context is unknown."""
STAND_IN: Final = "stand-in"
"""Prefix of the logged model if a mock answered."""
_LENGTHS: Final = frozenset({"max_tokens", "max_completion_tokens"})
"""Two names of one setting."""
_NO_SAMPLING: Final = frozenset(
    {
        *("messages", "contents", "model", "system_instruction", "systemInstruction", "system"),
        *("stream_options", "logprobs", "adapter", "lora"),
    }
)

Served: TypeAlias = tuple[AdapterRecord | None, LiveAnswer | None]
"""Adapter that answers, and the answer's part in a test; ``None`` for the base model and without a
test.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """Prompt with its role, user and source."""

    messages: tuple[Mapping[str, Json], ...]
    """Messages in OpenAI's form without the persona; the last is the user's, or a tool's result.
    """
    role: str
    user_id: str
    source: str
    """Source of the prompt: ``chat`` or ``api``."""
    event_id: str = ""
    """Id of the prompt at its source; empty means the answer's id."""
    conversation_id: str | None = None
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Request fields from the user; the configuration and its search space take precedence."""
    context: Mapping[str, Json] = field(default_factory=dict)
    """Features of the request for contextual arms."""
    interaction_id: str = field(default_factory=new_interaction_id)
    """Id of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """Prompt with the settings for its answer."""

    prompt: ChatPrompt
    params: Params
    case: Case
    """Prompt with its persona, as the target takes it."""
    chosen: Selection | None
    """Arm that answers; ``None`` if none is active."""
    model: str
    """Requested model name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAnswer:
    """Durably logged answer."""

    interaction: Interaction
    """Stored interaction, without secrets."""
    text: str
    """Text as the model wrote it."""
    finish_reason: str | None
    """Provider's finish reason; ``None`` if it reports none."""
    usage: Usage
    tool_calls: tuple[Mapping[str, Json], ...] = ()
    """Tool calls in OpenAI's form."""


class LoggedChat:
    """Chat that logs each answer before it returns, for one event loop.

    Args:
        loaded: Configuration of a chat kind.
        environment: Keys, prices and address of the mock.
        feedback: Store of the answers.
        runtime: Store of the arms.
        paid: Caller with a ledger, closed with this object; ``None`` leaves calls only in the log.
        judge_share: Share of answers that the judge rewards, which needs ``paid``; 0 means none.

    Raises:
        ConfigurationError: the configuration has no chat model, no parameters to answer with, or
            no judge for ``judge_share``.
    """

    def __init__(
        self,
        loaded: Loaded,
        environment: Environment,
        feedback: FeedbackStore,
        runtime: RuntimeStore,
        paid: PaidAnswers | None = None,
        *,
        judge_share: float = 0.0,
    ) -> None:
        self.configuration = loaded.configuration
        self._paid = paid
        self.feedback = feedback
        self.is_offline = environment.mock_url is not None
        """Whether a mock answers; its answers have no arm, so that their ratings teach none."""
        self._check(loaded, environment)
        self._space, self._texts = loaded.space, loaded.texts
        self._standard = _standard_params(loaded)
        self._prices = environment.prices
        self.system = loaded.configuration.api.name
        """Name of the system, which is also a role without a persona."""
        personas = loaded.configuration.feedback.roles
        self.roles: Mapping[str, str] = {self.system: "", **BUILT_IN, **personas}
        """Persona of every role."""
        self._systems = Systems(runtime)
        self._judged: JudgedAnswers | None = None
        if judge_share and paid is not None:
            self._judged = JudgedAnswers.of(
                loaded, environment, share=judge_share, paid=paid, systems=self._systems
            )
        self._requests = RequestsInFlight(feedback.root)
        self._adapters = RoleAdapters(loaded, feedback, environment.secrets, model=self.model)
        self._target = ChatTarget(
            loaded.configuration,
            **fields_of(environment, "secrets", "prices", "mock_url"),
            workers=MOST_AT_ONCE,
            base_dir=loaded.base_dir,
            is_conversation=True,
        )

    @property
    def model(self) -> str:
        """Name of the model that answers unless an arm chooses another."""
        options = self.configuration.api.request.options
        return str(self._standard.get("model") or options.get("model"))

    @property
    def context_tokens(self) -> int:
        """Context tokens of that model in the price table."""
        api = self.configuration.api
        facts = self._prices.facts(provider_of(api.kind, api.endpoint), self.model)
        return facts.context_tokens or CONTEXT_TOKENS

    def reward(self, interaction_id: str) -> None:
        """Reward the arm's decision, if any, with an answer's first rating. Blocks."""
        send_rewards(self.feedback, self._systems, interaction_id)

    async def prepare(self, prompt: ChatPrompt) -> PreparedPrompt:
        """Choose the settings for a prompt's answer; the decision is durable on return.

        Raises:
            CandidateFault: no model is named, or it has no field for a setting.
            ConfigurationError: the role does not exist.
            FeedbackRefusedError: a name of the prompt cannot be logged with its answer.
            StoreError: the decision could not be logged.
        """
        for key in ("user_id", "role", "source", "conversation_id", "event_id"):
            if name := getattr(prompt, key):
                checked_name(key, name)
        persona_of(prompt.role, self.roles)
        return self._prepared(prompt, await asyncio.to_thread(self._selected, prompt))

    def _prepared(self, prompt: ChatPrompt, chosen: Selection | None) -> PreparedPrompt:
        arm_params = self._standard if chosen is None else self._params_of(chosen)
        fixed = self._space.parameters.keys() | self.configuration.api.request.options.keys()
        if fixed & _LENGTHS:
            fixed |= _LENGTHS
        given = {name: value for name, value in prompt.settings.items() if name not in fixed}
        if self.configuration.api.kind == "local" and not self.is_offline:
            given["logprobs"] = True  # local models compute them at no cost
        params: Params = {**given, **arm_params}  # type: ignore[dict-item] # a field may be any JSON
        persona = persona_of(prompt.role, self.roles)
        messages: list[Json] = [{"role": "system", "content": persona}]
        messages += [dict(message) for message in prompt.messages]
        case = Case(case_id=prompt.source, input=messages)
        request = self._target.request(params, case)
        model = as_text(request["model"])
        return PreparedPrompt(prompt=prompt, params=params, case=case, chosen=chosen, model=model)

    async def write(
        self,
        prepared: PreparedPrompt,
        on_text: TextCallback,
        on_fallback: Callable[[PreparedPrompt], object] = id,
    ) -> LoggedAnswer:
        """Answer a prompt, streaming its text, and return the durably logged answer.

        A failed or cancelled answer is not logged. A paid call that has started still ends, and
        the ledger holds its cost.

        Args:
            prepared: Prompt with its settings.
            on_text: Callback for each piece of text.
            on_fallback: Callback for the prompt with another arm's settings, before its first
                piece.

        Raises:
            CandidateFault: the provider rejects the request, or the answer is empty.
            EvaluatorFault: the daily limit rejects the call.
            InfrastructureFault: network, time-out, rate limit, server, or denied access.
            StoreError: the answer could not be logged.
        """
        with self._requests.request():  # background training waits
            prepared, (reply, completion, served) = await self._answered_by_an_arm(
                prepared, on_text, on_fallback
            )
        record, part = served
        version = None if record is None else record.version
        interaction = await asyncio.to_thread(
            self.feedback.log,
            self._interaction(prepared, reply, completion.logprobs, adapter_version=version),
            part,
        )
        if self._judged is not None and interaction.decision_id and completion.text:
            self._judged.consider(
                interaction.interaction_id,
                interaction.decision_id,
                reply,
                prepared.case,
                prepared.params,
            )
        return LoggedAnswer(
            interaction=interaction,
            text=completion.text,
            **fields_of(reply, "finish_reason", "usage"),
            tool_calls=tuple(called_tools(completion.raw)),
        )

    async def forward(
        self, path: str, body: Mapping[str, Json], on_event: EventCallback | None = None
    ) -> Mapping[str, Json]:
        """Send a body in OpenAI's form unchanged, and return the answer without logging it.

        Args:
            path: Path below the provider's base URL, e.g. ``embeddings``.
            body: Request body with a ``model`` of the provider.
            on_event: Callback for each event of a streamed answer; the last event's response is
                returned.

        Raises:
            EvaluationFault: as ``write``, or the provider has no such path.
            StoreError: the call log cannot be written.
        """
        call = self._target.forwarded(path, body, on_event)
        reply = await self._made(call, new_interaction_id())
        return mapping(reply.value)

    async def aclose(self) -> None:
        """Close the connections; safe to call twice."""
        if self._judged is not None:
            await self._judged.aclose()
        if self._paid is not None:
            await self._paid.aclose()
        await self._target.aclose()
        await self._adapters.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check(self, loaded: Loaded, environment: Environment) -> None:
        api = loaded.configuration.api
        if api.kind not in CHAT_KINDS:
            rule = f"must be a chat kind to chat: {', '.join(sorted(CHAT_KINDS))}"
            fix = "Name a chat model, e.g. with `convergence init --template chat`."
            raise ConfigurationError.of("api.kind", rule, fix, value=api.kind)
        if api.kind == "local" and environment.mock_url is None:
            from tasks.providers.local_chat import check_local_models  # noqa: PLC0415 - optional

            check_local_models(loaded.configuration, loaded.base_dir)

    def _selected(self, prompt: ChatPrompt) -> Selection | None:
        """Return the arm that answers; ``None`` if none is active."""
        if self.is_offline:
            return None
        operation = self._systems.selection(
            self.system,
            user_id=prompt.user_id,
            context={"session_id": prompt.conversation_id, **prompt.context, "role": prompt.role},
            text=last_text([dict(message) for message in prompt.messages]),
        )
        try:
            return performed(self._systems.store, operation)
        except NoArmsError:
            return None

    def _fallback(self, prepared: PreparedPrompt, failed: Set[str]) -> PreparedPrompt | None:
        """Return a prompt with the best active arm whose model has not failed; else ``None``.

        Blocks. A mock answers without an arm, so it has no fallback.
        """
        if prepared.chosen is None:
            return None
        kind = self._systems.config(self.system).agent_type
        arms = [arm for arm in self._systems.arms(self.system, kind) if not arm.retired]
        for arm in sorted(arms, key=lambda arm: arm.mean, reverse=True):
            chosen = Selection(decision_id=None, arm_id=arm.arm_id, params=arm.params)
            other = self._prepared(prepared.prompt, chosen)
            if other.model not in failed:
                return other
        return None

    def _void(self, prepared: PreparedPrompt) -> None:
        """Void the decision of a prompt that its arm could not answer. Blocks."""
        if prepared.chosen is not None and prepared.chosen.decision_id is not None:
            self._systems.store.void(prepared.chosen.decision_id)

    @property
    def role_names(self) -> tuple[str, ...]:
        """Names of all roles, the built-in ones first."""
        return tuple({**BUILT_IN, **self.roles})

    def active_versions(self) -> dict[str, str]:
        """Return the active adapter of each role, without roles of the base model. Blocks."""
        if self.is_offline:
            return {}
        versions = {role: self._adapters.active(role) for role in self.role_names}
        return {role: version.version for role, version in versions.items() if version is not None}

    async def _answered_by_an_arm(
        self,
        prepared: PreparedPrompt,
        on_text: TextCallback,
        on_fallback: Callable[[PreparedPrompt], object],
    ) -> tuple[PreparedPrompt, tuple[Reply, ChatCompletion, Served]]:
        """Return an answer and its prompt, which has another arm if one's model failed."""
        n_passed, failed = 0, set[str]()

        def pass_on(text: str) -> None:
            nonlocal n_passed
            n_passed += 1
            on_text(text)

        while True:
            try:
                return prepared, await self._answered(prepared, pass_on)
            except (InfrastructureFault, EvaluatorFault) as fault:
                await asyncio.to_thread(self._void, prepared)
                if isinstance(fault, EvaluatorFault):
                    raise
                failed.add(prepared.model)
                other = await asyncio.to_thread(self._fallback, prepared, failed)
                if n_passed or other is None:
                    raise
                prepared = other
                on_fallback(prepared)

    async def _answered(
        self, prepared: PreparedPrompt, on_text: TextCallback
    ) -> tuple[Reply, ChatCompletion, Served]:
        """Return an answer, and the adapter that gave it.

        An adapter may be removed or unloaded between its selection and the answer; then the
        selection is repeated.
        """
        served = await self._served(prepared)
        record = served[0]
        try:
            return *await self._answered_by(record, prepared, on_text), served
        except EvaluationFault as fault:
            if record is None or fault.error_type not in (ERROR_TYPE, "http_404"):
                raise
            self._adapters.lose(record.version)
            served = await self._served(prepared)
            if served[0] == record and fault.error_type == ERROR_TYPE:
                raise
        return *await self._answered_by(served[0], prepared, on_text), served

    async def _answered_by(
        self, record: AdapterRecord | None, prepared: PreparedPrompt, on_text: TextCallback
    ) -> tuple[Reply, ChatCompletion]:
        params, case = prepared.params, prepared.case
        completions: list[ChatCompletion] = []

        async def send() -> Reply:
            async with self._adapters.fields_for(record, model=prepared.model) as fields:
                reply, completion = await self._target.answer(params, case, on_text, fields=fields)
            completions.append(completion)
            return reply

        if self.is_offline:
            return await self._target.answer(params, case, on_text, fields={})
        call = PaidCall.of_target(
            self._target, params, case, purpose="answer", credential=None,
            timeout_s=self.configuration.api.request.timeout_seconds,
        )  # fmt: skip
        reply = await self._made(replace(call, send=send), prepared.prompt.interaction_id)
        return reply, completions[-1]

    async def _made(self, call: PaidCall, interaction_id: str) -> Reply:
        return await (call.send() if self._paid is None else self._paid.make(call, interaction_id))

    async def _served(self, prepared: PreparedPrompt) -> Served:
        """Return the adapter for a prompt; ``None`` for the base model or another model."""
        if self.is_offline or prepared.model != self.model:
            return None, None
        prompt = prepared.prompt
        # A client without ids sends the whole conversation each time, with the same beginning.
        first = next((m["content"] for m in prompt.messages if m["role"] == "user"), "")
        return await asyncio.to_thread(
            self._adapters.answering,
            prompt.role,
            prompt.user_id,
            prompt.conversation_id or as_text(first),
        )

    def _params_of(self, chosen: Selection) -> Params:
        """Return the parameters of an arm; a manually added arm may set only some."""
        params = {
            name: self._texts.get(value, value) if isinstance(value, str) else value
            for name, value in chosen.params.items()
        }
        return {**self._standard, **params} if self._space.validate(params) else params

    def _interaction(
        self,
        prepared: PreparedPrompt,
        reply: Reply,
        logprobs: tuple[float, ...] | None,
        *,
        adapter_version: str | None,
    ) -> Interaction:
        prompt, params, case = prepared.prompt, prepared.params, prepared.case
        chosen, model = prepared.chosen, reply.model or prepared.model
        if adapter_version is not None:
            model = prepared.model  # servers may report the adapter's name as the model
        sent = [_logged_message(message) for message in self._target.messages(params, case)]
        body = mapping(self._target.request(params, case)["body"])
        decision_id = None if chosen is None else chosen.decision_id
        return Interaction(
            **fields_of(prompt, "interaction_id", "source", "role", "user_id", "conversation_id"),
            event_id=prompt.event_id or prompt.interaction_id,
            model=f"{STAND_IN} {model}" if self.is_offline else model,
            messages=tuple(sent),
            response=as_text(reply.value),
            thinking=reply.thinking,
            created_us=wall_clock_us(),
            adapter_version=adapter_version,
            template_hash=sha256_hex(sent[0].content if sent[0].role == "system" else ""),
            sampling={name: value for name, value in body.items() if name not in _NO_SAMPLING},
            logprobs=logprobs,
            n_input_tokens=reply.usage.prompt_tokens,
            n_output_tokens=reply.usage.completion_tokens,
            latency_s=reply.latency_ms / 1_000,
            cost_usd=None if self.is_offline else reply.cost_usd,
            system=None if decision_id is None else self.system,
            decision_id=decision_id,
        )


def _logged_message(message: Mapping[str, Json]) -> ChatMessage:
    """Convert a message to text: other parts become their type, tool messages their result."""
    role, content = as_text(message["role"]), message["content"]
    if isinstance(content, list):
        parts = mappings(content)
        content = "".join(as_text(p.get("text", f"[{as_text(p.get('type'))}]")) for p in parts)
    calls = message.get("tool_calls")
    texts: list[Json] = [content, {"tool_calls": calls} if calls else None]
    return ChatMessage(
        role=role if role in ROLES else "user",
        content="\n".join(as_text(text) for text in texts if text is not None),
    )


def _standard_params(loaded: Loaded) -> Params:
    """Return the parameters to answer with if no arm is active: the champion's, or the defaults.

    Raises:
        ConfigurationError: there is neither.
    """
    champion = champion_now(loaded)
    params = loaded.space.baseline() if champion is None else champion.params
    if params is None:
        raise ConfigurationError.of(
            "search_space.parameters",
            "must have a `default` in at least one parameter, because nothing is promoted yet",
            "Write `default:` below a parameter, or promote a run.",
        )
    return params
