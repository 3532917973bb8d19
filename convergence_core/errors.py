"""The error tree.

::

    ConvergenceError
    ├── ConfigurationError        the user's files are wrong: a list of Problems   (exit 2)
    ├── ForeignPackageError       another distribution lies where ours should      (exit 1)
    ├── StoreError                the results store cannot be used                 (exit 1)
    │   ├── StoreFormatError      written by a newer version, or not a store
    │   ├── StoreDamagedError     a file is torn, empty or not what its name says
    │   └── StoreWriteError       disk full, read-only, no permission
    ├── ArmChangedError           an arm's name stands for other parameters        (exit 2)
    ├── NoArmsError               nothing is on offer, or nothing to compare       (exit 2)
    ├── RequestReusedError        an idempotency key stands for two requests       (exit 2)
    ├── WrongUserError            a reward names another user than its decision    (exit 2)
    ├── FeedbackRefusedError      a rating or comparison cannot be taken in        (exit 2)
    ├── InteractionNotFoundError  no answer of that id was logged                  (exit 2)
    ├── AdapterRefusedError       an adapter may not become what was asked         (exit 2)
    ├── AdapterNotFoundError      no adapter of that version was registered        (exit 2)
    ├── PolicyCheckpointError     a policy's file is damaged, or another system's   (exit 2)
    ├── PolicyDecisionNotFoundError  no decision of that id waits for its outcome  (exit 2)
    ├── PolicyRequestError        a policy cannot take in what was asked           (exit 2)
    ├── PolicyBusyError           an update runs, or another process serves it     (exit 1)
    ├── PromptScoreMissingError   a prompt could not be scored on all of its cases (exit 1)
    ├── QueryError                the SQL is wrong                                 (exit 2)
    ├── RunNotFoundError          no run, or several, of that name                 (exit 2)
    ├── LeaseHeldError            another process optimizes this system            (exit 1)
    ├── ResumeError               the run cannot go on as it was                   (exit 2)
    ├── NoRewardError             a run has ended without a configuration to return (exit 1)
    ├── RunInterruptedError       Ctrl-C or a cancel: paid work kept               (exit 130)
    ├── EndpointDownError         an endpoint answers nothing any more             (exit 1)
    ├── NotificationError         a notice did not reach its address               (exit 1)
    ├── PrefectServerError        Prefect's server cannot be reached or started    (exit 1)
    ├── WorkerLostError           a process that evaluates candidates has ended    (exit 1)
    └── EvaluationFault           one cell went wrong: data, seldom an exception
        ├── CandidateFault        the candidate's doing: reward 0, reason kept
        ├── InfrastructureFault   rate limit, network, server: missing, retried
        └── EvaluatorFault        a metric raised: missing

Messages name the key, the rule, the value and the fix, in that order.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from convergence_core.records import FaultName, RateInfo, Usage


class ConvergenceError(Exception):
    """Root of all errors the product raises on purpose; shown without a traceback."""

    exit_code: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong in a configuration or a test-case file."""

    key: str
    """Dotted path, e.g. ``search_space.parameters.temperature.max``; empty for the whole file."""
    rule: str
    """What must hold, e.g. "must exceed `min`"."""
    value: str = ""
    """The offending value as text, shortened; empty when the key is missing."""
    fix: str
    """What to write instead; never empty."""
    file: str | None = None
    """Path as the user gave it; ``None`` when the configuration came from Python."""
    line: int | None = None
    """1-based; ``None`` when the position is unknown."""
    column: int | None = None
    """1-based; ``None`` when the position is unknown."""

    def __str__(self) -> str:
        """Render as ``file:line:column: key rule, but got value. fix``."""
        where = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        what = f"`{self.key}` {self.rule}" if self.key else self.rule[:1].upper() + self.rule[1:]
        got = f", but got {self.value}" if self.value else ""
        return f"{where + ': ' if where else ''}{what}{got}. {self.fix}"


class ProcessEnding(BaseException):
    """Raised where a signal strikes, to end the process: nobody takes it for a failure of the work."""


class ConfigurationError(ConvergenceError):
    """The configuration or a file it names is wrong; holds every problem found, not the first."""

    exit_code = 2

    def __init__(self, problems: list[Problem] | tuple[Problem, ...]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(
        cls, key: str, rule: str, fix: str, *, value: str = "", file: str | None = None
    ) -> Self:
        """Return the error of a single problem."""
        return cls([Problem(key=key, rule=rule, value=value, fix=fix, file=file)])

    def __reduce__(self) -> tuple[type["ConfigurationError"], tuple[tuple[Problem, ...]]]:
        """Pickle by problems, since the message is derived from them."""
        return type(self), (self.problems,)


class ForeignPackageError(ConvergenceError):
    """A package named like one of ours does not bear our marker."""


class StoreError(ConvergenceError):
    """The results store cannot be used."""


class StoreFormatError(StoreError):
    """The store was written by a newer version, or the folder is not a store."""


class StoreDamagedError(StoreError):
    """A file of the store is torn, empty or not what its name says."""


class StoreWriteError(StoreError):
    """A write failed: disk full, read-only folder or no permission. Nothing published is lost."""


class ArmChangedError(ConvergenceError):
    """An arm was offered under the name of another one."""

    exit_code = 2


class NoArmsError(ConvergenceError, LookupError):
    """Nothing is on offer there, or no two arms to compare."""

    exit_code = 2


class RequestReusedError(ConvergenceError):
    """An idempotency key was used for another request before."""

    exit_code = 2


class WrongUserError(ConvergenceError, ValueError):
    """A reward was given for a decision that served another user; nothing is stored."""

    exit_code = 2

    @classmethod
    def of(cls, decision_id: str, user_id: str) -> Self:
        """Return the error of a reward; whom the decision served is not told."""
        return cls(
            f"`user_id` must be the user that decision {decision_id} served, but got {user_id!r}. "
            "Leave it out: the decision knows its user."
        )


class FeedbackRefusedError(ConvergenceError, ValueError):
    """A rating, comparison or logged answer breaks a rule; nothing is stored."""

    exit_code = 2


class InteractionNotFoundError(ConvergenceError, LookupError):
    """No answer of that id was logged, or it was forgotten."""

    exit_code = 2


class AdapterRefusedError(ConvergenceError, ValueError):
    """An adapter may not become what was asked, or its files break a rule; nothing is changed."""

    exit_code = 2


class AdapterNotFoundError(ConvergenceError, LookupError):
    """No adapter of that version was registered."""

    exit_code = 2


class TrainingFailedError(ConvergenceError):
    """A round of training gave no adapter that could be judged; nothing is changed."""


class PolicyCheckpointError(ConvergenceError):
    """A policy's checkpoint is damaged, or of another embedding or set of actions."""

    exit_code = 2


class PolicyDecisionNotFoundError(ConvergenceError, LookupError):
    """No decision of a policy has that id, or it was too old to be kept."""

    exit_code = 2


class PolicyRequestError(ConvergenceError, ValueError):
    """A decision, an outcome or a checkpoint's name breaks a rule of a policy; nothing is changed."""

    exit_code = 2


class PromptScoreMissingError(ConvergenceError):
    """A prompt could not be scored on all of its cases: network, server, or budget."""


class PolicyBusyError(ConvergenceError):
    """A policy is updated by one request, or served by one process, at a time."""


class QueryError(ConvergenceError):
    """The SQL of a query is wrong."""

    exit_code = 2


class RunNotFoundError(ConvergenceError):
    """No run, or more than one, answers to that name."""

    exit_code = 2


class LeaseHeldError(ConvergenceError):
    """Another live process holds the lease on this optimized system."""


class ResumeError(ConvergenceError):
    """The run cannot go on as it was: its files or its function changed."""

    exit_code = 2


class NoRewardError(ConvergenceError):
    """A run has ended, and no configuration has a reward for an answer."""


class RunInterruptedError(ConvergenceError):
    """The run was asked to stop; what was paid is kept and the run can be resumed."""

    exit_code = 130


class EndpointDownError(ConvergenceError):
    """An endpoint or a function answers nothing any more.

    What was paid is kept and the run can be resumed.
    """


class NotificationError(ConvergenceError):
    """A notice did not reach the address that it was sent to."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether it may arrive when it is sent again."""


class PrefectServerError(ConvergenceError):
    """Prefect's server cannot be reached, or a temporary one does not start."""


class WorkerLostError(ConvergenceError):
    """A process that was evaluating a candidate has ended; its paid answers are in the journal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """What a call cost that was answered in full, though of no use: a refusal, an empty answer."""

    usage: Usage
    cost_usd: float | None
    """``None``: its price is unknown."""
    price_version: str | None = None
    """Date of the price table that ``cost_usd`` comes from; ``None``: the target said it."""
    model: str | None = None
    """As answered by the provider."""


class EvaluationFault(ConvergenceError):  # noqa: N818 - data first, seldom raised
    """One cell went wrong. Raised by targets and metrics, recorded as data by the session."""

    fault: ClassVar[FaultName] = "candidate"

    def __init__(
        self, message: str, *, error_type: str, details: str = "", billed: Billed | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        """Short reason for tables, e.g. ``timeout``, ``http_500``, ``ValueError``."""
        self.details = details
        """Original traceback or body, redacted and shortened; empty when there is none."""
        self.billed = billed
        """What the call cost; ``None``: nothing is known to have been charged."""


class CandidateFault(EvaluationFault):
    """The candidate's doing: bad answer, exception in the user's function, permanent 4xx."""

    fault = "candidate"


class InfrastructureFault(EvaluationFault):
    """Rate limit, network or server error: the cell is missing and may be retried."""

    fault = "infrastructure"

    def __init__(
        self,
        message: str,
        *,
        error_type: str,
        details: str = "",
        billed: Billed | None = None,
        retryable: bool = True,
        retry_after_s: float | None = None,
        may_be_billed: bool = False,
        rate: RateInfo | None = None,
    ) -> None:
        super().__init__(message, error_type=error_type, details=details, billed=billed)
        self.retryable = retryable
        """Whether the same call may succeed later."""
        self.retry_after_s = retry_after_s
        """Seconds the server asked to wait; ``None`` when it did not say."""
        self.may_be_billed = may_be_billed
        """Whether the request was sent and nobody saw what became of it: it may have cost money."""
        self.rate = rate
        """What the server said about its limits; ``None``: nothing, or there was no answer."""


class EvaluatorFault(EvaluationFault):
    """A metric raised or returned no finite number: the cell is missing, never 0."""

    fault = "evaluator"
