"""Scores of replies: metrics and reward, or the reason why there is none.

A score depends only on reply, case and parameters, so a resumed run that reads the reply from the
journal gets the same score.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from convergence_core.errors import CandidateFault, EvaluationFault, EvaluatorFault
from convergence_core.objective import RewardModel
from convergence_core.ports import Metric
from convergence_core.records import Case, FaultName, Json, Params, Reply, fields_of
from tasks.calls.metric_calls import Asker, PaidMetric
from tasks.secrets.redaction import shortened

MAX_ERROR_CHARS: Final = 4000

CONSTRAINT: Final = "constraint"
"""Error type of a valid answer that breaks a hard constraint: reward 0, status ``ok``."""

_USERS: Final = frozenset({"function", "plugin"})
"""Types of users' metrics, which have no fault type for an answer of the wrong form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellScore:
    """Metrics, reward and fault of an evaluation."""

    metrics: dict[str, float] = field(default_factory=dict)
    reward: float | None = None
    fault: FaultName | None = None
    error_type: str | None = None
    error: str | None = None
    """Message and original traceback, redacted and shortened."""

    def to_json(self) -> Json:
        """Return a JSON value from which ``from_json`` restores an equal score."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Json) -> "CellScore":
        """Restore a score from ``to_json``."""
        assert isinstance(value, dict)  # noqa: S101 - only ``to_json`` writes it
        return cls(**value)  # type: ignore[arg-type]  # as written


def error_text(message: str, details: str, redact: Callable[[str], str]) -> str:
    """Return message and traceback as one redacted string of bounded length."""
    text = shortened(message, MAX_ERROR_CHARS // 2, redact)
    if details and details.rstrip() != message:
        return f"{text}\n\n{shortened(details, MAX_ERROR_CHARS - len(text) - 2, redact)}"
    return text


@dataclass(eq=False, repr=False)
class Scorer:
    """Measures replies with the run's metrics."""

    metrics: Sequence[Metric | PaidMetric]
    rewards: RewardModel
    redact: Callable[[str], str]

    def __post_init__(self) -> None:
        """Sort the metrics, free ones first, since their faults may make a paid judge unnecessary."""
        self.metrics = sorted(self.metrics, key=lambda metric: isinstance(metric, PaidMetric))
        self._failed: dict[str, float] = {
            metric.name: value
            for metric in self.metrics
            if (value := getattr(metric, "value_of_fault", None)) is not None
        }

    def score_of_fault(self, fault: EvaluationFault) -> CellScore:
        """Return the score of a cell with a failed target or metric; 0 if the candidate failed."""
        is_candidates = fault.fault == "candidate"
        return CellScore(
            metrics=dict(self._failed) if is_candidates else {},
            reward=0.0 if is_candidates else None,
            **fields_of(fault, "fault", "error_type"),
            error=error_text(str(fault), fault.details, self.redact),
        )

    async def score(self, reply: Reply, case: Case, params: Params, asker: Asker) -> CellScore:
        """Measure a reply; faults of metrics become scores.

        A metric that cannot read the answer gets the worst value of its scale; the other metrics
        count. If it has a hard constraint, the reward is 0, as for a broken constraint. An
        unreadable answer also explains an exception of the user's function. A metric without
        weight and constraint never changes the reward; its fault is noted and its value is
        unknown.

        Args:
            reply: redacted answer.
            case: answered test case.
            params: candidate's parameters.
            asker: makes the paid calls of metrics.
        """
        metrics: dict[str, float] = {}
        left_out: set[str] = set()
        faults: dict[str, EvaluationFault] = {}
        noted: list[EvaluationFault] = []
        for metric in self.metrics:
            if isinstance(metric, PaidMetric) and self._decided(faults, metrics) is not None:
                break
            try:
                applies = getattr(
                    metric, "applies", None
                )  # without it, the metric applies to every case
                if applies is not None and not applies(case):
                    left_out.add(metric.name)
                elif isinstance(metric, PaidMetric):
                    metrics |= await metric.judge(reply, case, params, asker)
                elif (value := await metric.measure(reply, case, params)) is not None:
                    metrics[metric.name] = value
            except EvaluationFault as fault:
                if self.rewards.depends_on(metric.name):
                    faults[metric.name] = fault
                else:
                    noted.append(fault)
        decided = self._decided(faults, metrics)
        if decided is not None:
            return decided
        unread = list(self._unread(faults).values())
        metrics |= self.rewards.worst(faults)
        score = self.rewards.score(metrics, left_out)
        noted.sort(key=lambda fault: not isinstance(fault, CandidateFault))
        if score.fault is None and (unread or noted):
            failed = self.score_of_fault((unread or noted)[0])
            cause: FaultName | None = "candidate" if unread else None
            return replace(failed, metrics=metrics, reward=score.reward, fault=cause)
        kinds: dict[FaultName | None, str] = {"candidate": CONSTRAINT, "evaluator": "no_reward"}
        return CellScore(
            metrics=metrics,
            **fields_of(score, "reward", "fault"),
            error_type=kinds.get(score.fault),
            error=score.reason,
        )

    def _unread(self, faults: Mapping[str, EvaluationFault]) -> dict[str, EvaluationFault]:
        """Return the faults of metrics that the answer caused, explicit ones first."""
        unreadable: dict[str, EvaluationFault] = {
            name: fault for name, fault in faults.items() if isinstance(fault, CandidateFault)
        }
        broken = {
            name: fault
            for name, fault in faults.items()
            if isinstance(fault, EvaluatorFault)
            and getattr(self.rewards.metrics.get(name), "type", None) in _USERS
        }
        return unreadable | broken if unreadable else {}

    def _decided(
        self, faults: Mapping[str, EvaluationFault], metrics: Mapping[str, float]
    ) -> CellScore | None:
        """Return the score that faults of metrics determine regardless of the others."""
        unread = self._unread(faults)
        for name, fault in unread.items():
            rule = self.rewards.metrics.get(name)
            if rule is not None and rule.is_constrained:
                values = {**metrics, **self.rewards.worst(unread)}
                failed = self.score_of_fault(fault)
                return replace(failed, metrics=values, reward=0.0, fault="candidate")
        for name, fault in faults.items():
            if name not in unread:
                return replace(self.score_of_fault(fault), metrics=dict(metrics))
        return None
