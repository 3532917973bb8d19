"""Model calls of agents, made, priced and recorded like all other calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from convergence_core.budget.prices import PriceTable
from convergence_core.config import ApiConfig
from convergence_core.config.evaluation import LlmConfig
from convergence_core.ports import LLM, Completion
from convergence_core.records import Json
from tasks.calls.metric_calls import PaidCall
from tasks.calls.model_calls import Model
from tasks.json_values import first_of, mapping, mappings
from tasks.providers import billing_provider, make_llm, split_model
from tasks.providers.answers import REASONING, called_tools
from tasks.providers.anthropic import THINKING, THINKING_BLOCKS
from tasks.secrets.redaction import Secrets

PURPOSE: Final = "agent"
DEFAULT_MAX_TOKENS: Final = 1024
"""Default maximum tokens of an answer."""
_THOUGHTS: Final = (REASONING, "reasoning_details")
"""Message fields with thoughts: of DeepSeek and local servers, and of OpenRouter."""


@dataclass(slots=True, eq=False, kw_only=True)
class AgentModels:
    """Chat models that the agents of one configuration call."""

    api: ApiConfig
    prices: PriceTable
    secrets: Secrets
    workers: int
    """Maximum calls in flight."""
    mock_url: str | None = None
    """Server that answers instead of the providers."""
    _llms: dict[str, LLM] = field(default_factory=dict, init=False)

    def call(
        self,
        name: str,
        messages: Sequence[Mapping[str, Json]],
        options: Mapping[str, Json],
        *,
        run_key: str,
        repeat: int,
    ) -> PaidCall:
        """Return a model call; its reply's value is the answer's message.

        With tool calls it has ``thoughts``: fields that the next request must send back.

        Args:
            name: Model name, with the provider as in ``openai/…``.
            messages: Messages in OpenAI's form.
            options: Further request fields.
            run_key: Key of the agent's run, which shares answers with no other.
            repeat: Index among equal requests of the run.
        """
        config = self._config(name)
        model = Model(
            llm=self._llm(name),
            name=split_model(name)[1],
            timeout_s=config.timeout_seconds,
            credential=config.api_key_env,
            prices=self.prices,
        )
        return model.call(
            PURPOSE,
            messages,
            {"max_tokens": DEFAULT_MAX_TOKENS, **options},
            key={"agent_run": run_key},
            read=_message,
            repeat=repeat,
        )

    def is_priced(self, name: str) -> bool:
        """Return whether a model's price is known."""
        return self.prices.find(*billing_provider(self._config(name))) is not None

    async def aclose(self) -> None:
        """Close the models' connections; safe to call twice."""
        for llm in self._llms.values():
            await llm.aclose()

    def _config(self, name: str) -> LlmConfig:
        return LlmConfig(
            model=name,
            endpoint=self.api.endpoint,
            api_key_env=self.api.auth.token_env,
            timeout_seconds=self.api.request.timeout_seconds,
            parallel_workers=min(512, self.workers),
        )

    def _llm(self, name: str) -> LLM:
        # One client per provider: its models differ only in the request.
        provider, _ = split_model(name)
        key = name if provider == "plugin" else provider
        if key not in self._llms:
            self._llms[key] = make_llm(
                self._config(name),
                self.secrets,
                key="api",
                mock_url=self.mock_url,
                max_response_bytes=self.api.request.max_response_bytes,
            )
        return self._llms[key]


def _message(done: Completion) -> Json:
    """Return an answer's text, its tool calls in OpenAI's form with ids, and its thoughts."""
    message = mapping(first_of(done.raw.get("choices")).get("message"))
    thoughts = {name: message[name] for name in _THOUGHTS if message.get(name)}
    blocks = mappings(done.raw.get("content"))
    kept: list[Json] = [dict(block) for block in blocks if block.get("type") in THINKING]
    if kept:
        thoughts = {THINKING_BLOCKS: kept}
    calls: list[Json] = [*called_tools(done.raw)]
    answer: dict[str, Json] = {"content": done.text, "tool_calls": calls}
    # Only with tool calls: servers require the thoughts with the tools' results.
    return {**answer, "thoughts": thoughts} if calls and thoughts else answer
