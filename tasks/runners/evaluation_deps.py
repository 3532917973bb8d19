"""Dependencies of evaluation: target, metrics and their session."""

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from convergence_core.budget.limits import Budget
from convergence_core.budget.rate_limit import AddressCheck
from convergence_core.config import Configuration
from convergence_core.config.models import TelemetryConfig
from convergence_core.events import BudgetWarned, CallListener, TrafficChanged
from convergence_core.objective import RewardModel
from convergence_core.ports import Metric, SessionTarget, Target
from convergence_core.records import Evaluation, fields_of
from convergence_core.space.parameters import Choice
from tasks.calls.dispatcher import Workload
from tasks.calls.metric_calls import PaidMetric
from tasks.calls.paid_calls import CallLimits
from tasks.calls.pending_calls import RunContext, endpoint_of
from tasks.calls.rate_limiter import SharedRates
from tasks.calls.session import EvaluationSession
from tasks.inputs.environment import Environment
from tasks.inputs.factories import make_metrics, make_target
from tasks.inputs.loader import Loaded
from tasks.runners.work_items import RunSpec
from tasks.secrets.redaction import Redactor, journal_url, secret_name
from tasks.store.journal.rates import Rates
from tasks.store.journal.sql_journal import Journal
from tasks.store.tables.lineage import OFFLINE, payer
from tasks.telemetry.listeners import local_telemetry

_SERVES: Final = re.compile(r"serve_forever|serve_json|uvicorn|\.run\(")
_PORT: Final = re.compile(r"\b[1-9]\d{3,4}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationDeps:
    """Target, metrics and environment of a run."""

    loaded: Loaded
    environment: Environment
    target: Target
    metrics: Sequence[Metric | PaidMetric]
    redact: Redactor
    """Redactor of everything that is stored, sent or shown."""

    @classmethod
    def of(
        cls,
        loaded: Loaded,
        environment: Environment,
        *,
        local_function: Callable[..., Any] | None = None,
        evaluator: Callable[..., Any] | None = None,
    ) -> Self:
        """Return the dependencies of a configuration.

        Args:
            loaded: Configuration and its files.
            environment: Keys and prices.
            local_function: Function that replaces ``api.function``.
            evaluator: User's evaluator.

        Raises:
            ConfigurationError: something that it names cannot be used.
        """
        return cls(
            loaded=loaded,
            environment=environment,
            target=make_target(loaded, environment, local_function=local_function),
            metrics=make_metrics(loaded, environment, evaluator=evaluator),
            redact=environment.redactor(loaded.configuration),
        )

    @property
    def telemetry(self) -> TelemetryConfig:
        """Telemetry of the run; offline only its local receivers."""
        telemetry = self.loaded.configuration.telemetry
        return telemetry if self.environment.mock_url is None else local_telemetry(telemetry)


def open_session(
    deps: EvaluationDeps,
    spec: RunSpec,
    *,
    journal: Journal,
    budget: Budget,
    n_sessions: int = 1,
    on_cell: Callable[[Evaluation], None] | None = None,
    on_notice: Callable[[BudgetWarned | TrafficChanged], None] | None = None,
) -> EvaluationSession:
    """Return a session of a run, in its process or in one of several that share its limits.

    Args:
        deps: Dependencies, closed with the session.
        spec: Specification of the run.
        journal: Call log of the run; not closed with the session.
        budget: Budget of the session.
        n_sessions: Number of sessions that share the calls in flight.
        on_cell: see ``EvaluationSession``.
        on_notice: see ``EvaluationSession``.

    Raises:
        ConfigurationError: ``telemetry`` needs an extra that is missing.
        StoreError: the database of call times cannot be opened.
    """
    loaded, record = deps.loaded, spec.record
    configuration = loaded.configuration
    execution, llm = configuration.optimization.execution, configuration.llm
    rates = None
    if execution.calls_per_second:
        slots = Rates(spec.store_path, journal_url(configuration))
        rates = SharedRates(slots, execution.calls_per_second)
    if isinstance(deps.target, SessionTarget):
        deps.target.bind(record.run_id)
    return EvaluationSession(
        context=RunContext(
            **fields_of(record, "run_id", "label"),
            cache=configuration.cache,
            payer=payer(record),
            world=OFFLINE if OFFLINE in record.tags else "",
            redact=deps.redact,
            keep_text=configuration.storage.keep_text,
        ),
        workload=Workload(
            target=deps.target,
            timeout_s=configuration.api.request.timeout_seconds,
            credential=secret_name(configuration.api),
            metrics=deps.metrics,
            rewards=RewardModel(configuration.evaluation.metrics),
            cases={case.case_id: case for case in loaded.cases},
        ),
        limits=CallLimits(
            workers=max(1, execution.parallel_workers // n_sessions),
            judge_workers=max(1, _judge_workers(configuration) // n_sessions),
            thought_workers=1 if llm is None else llm.parallel_workers,
            **fields_of(execution, "max_retries", "max_rate_limit_retries"),
        ),
        journal=journal,
        budget=budget,
        rates=rates,
        address_of=partial(_address_check, loaded),
        on_cell=on_cell,
        on_call=_spans_of(deps),
        on_notice=on_notice,
    )


def _spans_of(deps: EvaluationDeps) -> CallListener | None:
    """Return the exporter of the calls' spans; ``None`` without an endpoint.

    Raises:
        ConfigurationError: the extra ``otel`` is missing.
    """
    configuration, telemetry = deps.loaded.configuration, deps.telemetry
    if telemetry.endpoint is None:
        return None
    from tasks.telemetry.spans import CallSpans, check_telemetry  # noqa: PLC0415 - seldom used

    check_telemetry(configuration)
    return CallSpans(
        telemetry.endpoint,
        system=configuration.api.name,
        redact=deps.redact,
        has_content=telemetry.content,
    )


def _judge_workers(configuration: Configuration) -> int:
    """Return the maximum judge calls in flight."""
    model_to_workers = {
        llm.model_dump_json(): llm.parallel_workers
        for metric in configuration.evaluation.judges.values()
        if (llm := configuration.judge_of(metric)) is not None
    }
    return max(1, sum(model_to_workers.values()))


def _address_check(loaded: Loaded, endpoint: str) -> AddressCheck:
    """Return the check of an endpoint's address, with the number of possible candidates."""
    models = loaded.configuration.api.models
    model = loaded.space.parameters.get("model")
    n_models = len(model.choices) if isinstance(model, Choice) else 1
    if models:
        n_models = sum(
            endpoint_of({"url": model.endpoint}) == endpoint for model in models.values()
        )
    return AddressCheck(
        n_candidates=loaded.space.size(),
        n_models=max(1, n_models),
        commands=_service_commands(loaded.base_dir),
    )


def _service_commands(folder: Path) -> dict[str, str]:
    """Return the ports in servers next to the configuration, with the commands that start them."""
    commands: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        with contextlib.suppress(OSError):  # only a hint depends on it
            text = path.read_text("utf-8", errors="replace")
            if _SERVES.search(text):
                commands |= dict.fromkeys(_PORT.findall(text), f"python {path.name}")
    return commands
