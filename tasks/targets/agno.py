"""Agno's agents, teams and workflows as targets."""

import asyncio
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version

from convergence_core.config import ApiConfig
from convergence_core.errors import ConfigurationError, EndpointDownError, InfrastructureFault
from convergence_core.ports import WorstCase
from convergence_core.records import Case, Json, Params, Reply, canonical_json, sha256_hex
from tasks.agents.agent_run import AgentRun
from tasks.agents.model_calls import AgentModels
from tasks.calls.metric_calls import Asker
from tasks.functions.function_results import result_json
from tasks.functions.user_functions import UserFunction
from tasks.functions.workers import ThreadPool, WorkersHungError, WorkOutcome, measured
from tasks.json_values import as_text
from tasks.version import install_command

_UNLIMITED_S = 1e7
"""Pool time-out; ``AgentRun.until`` ends the run itself."""


@dataclass(slots=True, eq=False, kw_only=True)
class AgnoTarget:
    """``ComposedTarget`` that makes an agent for each evaluation and runs it.

    The answer is ``{content, tool_calls}``. Its cost is that of its model calls.
    """

    provider = "agno"
    name: str
    factory: UserFunction
    api: ApiConfig
    models: AgentModels
    workers: int
    run_agent: Callable[..., object]
    """``tasks.agents.agno_agents.run_agent``, which imports Agno."""
    _threads: ThreadPool = field(init=False)

    def __post_init__(self) -> None:
        """Prepare the threads, which start on first use."""
        self._threads = ThreadPool(self.workers, name="agent")

    @property
    def longest_s(self) -> float:
        """Maximum seconds of a run: its model calls and its own work between them."""
        return self.api.request.timeout_seconds * (self.api.agent.max_model_calls + 1)

    def request(self, params: Params, case: Case) -> Json:
        """Return factory, input, parameters and the agent's limits."""
        request: dict[str, Json] = {
            "agno": version("agno"),
            "factory": self.name,
            "endpoint": self.api.endpoint,
            "input": case.input,
            "params": dict(params),
            "agent": self.api.agent.model_dump(mode="json", exclude={"secrets"}),
        }
        model = params.get("model")
        return {**request, "model": model} if isinstance(model, str) else request

    def worst_case(self, params: Params, case: Case) -> WorstCase:  # noqa: ARG002 - as the protocol has it
        """Return 0 dollars, as model calls reserve their own; unknown if a price is missing."""
        model = params.get("model")
        is_priced = isinstance(model, str) and self.models.is_priced(model)
        return WorstCase(usd=0.0 if is_priced else None)

    async def call(self, params: Params, case: Case) -> Reply:  # noqa: ARG002 - protocol
        """Raise: an agent's model calls need the limits of a run.

        Raises:
            InfrastructureFault: always.
        """
        raise InfrastructureFault(
            "only a run can call an agent: its model calls need the run's limits and ledger",
            error_type="no_run",
            retryable=False,
        )

    async def compose(self, params: Params, case: Case, asker: Asker) -> Reply:
        """Run the agent once; see ``ComposedTarget.compose``."""
        run = AgentRun(
            loop=asyncio.get_running_loop(),
            asker=asker,
            models=self.models,
            config=self.api.agent,
            key=sha256_hex(canonical_json(self.request(params, case)))[:24],
        )
        outcome = await self._outcome(run, params, case)
        if run.fault is not None:
            raise run.fault
        if outcome.failure is not None:
            raise outcome.failure.fault()
        content: Json = outcome.value  # type: ignore[assignment]  # converted in the worker
        return run.reply(
            content, time_outside_calls_s=run.time_outside_calls_s, provider=self.provider
        )

    async def _outcome(self, run: AgentRun, params: Params, case: Case) -> WorkOutcome:
        work = partial(
            self.run_agent,
            self.factory,
            run,
            params=dict(params),
            text=input_text(case.input),
            secrets=self.models.secrets,
        )
        waiting = asyncio.ensure_future(
            self._threads.run(partial(measured, work, result_json), _UNLIMITED_S)
        )
        try:
            await run.until(waiting, self.api.request.timeout_seconds)
            return waiting.result()
        except WorkersHungError as error:
            raise EndpointDownError(
                f"all {error} workers are held by agents of {self.name} whose tools never ended, so no "
                "further call is possible. Give the tools their own time-outs. Paid answers are kept; "
                "`convergence resume` continues."
            ) from None
        finally:
            run.close()
            waiting.cancel()

    async def aclose(self) -> None:
        """Close the models' connections and end the threads; safe to call twice."""
        await self.models.aclose()
        await self._threads.aclose()


def input_text(case_input: Json) -> str:
    """Return an agent's input: a string, the only string of a mapping, or the input as JSON."""
    if isinstance(case_input, dict) and len(case_input) == 1:
        (only,) = case_input.values()
        if isinstance(only, str):
            return only
    return as_text(case_input)


def make_agno_target(
    factory: UserFunction, api: ApiConfig, *, name: str, models: AgentModels, workers: int
) -> AgnoTarget:
    """Return the target of a factory of agents.

    Raises:
        ConfigurationError: Agno is not installed.
    """
    if importlib.util.find_spec("agno") is None:
        rule = "needs Agno, which is not installed"
        raise ConfigurationError.of(
            "api.kind", rule, f"Run {install_command('agno')}.", value="agno"
        )
    from tasks.agents.agno_agents import run_agent  # noqa: PLC0415 - imports Agno

    return AgnoTarget(
        name=name, factory=factory, api=api, models=models, workers=workers, run_agent=run_agent
    )
