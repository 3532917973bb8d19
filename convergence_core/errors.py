"""Tree of errors.

::

    ConvergenceError
    ├── ConfigurationError        the user's files are wrong: a list of Problems   (exit 2)
    ├── ForeignPackageError       another distribution's package has our name      (exit 1)
    ├── StoreError                the results store cannot be used                 (exit 1)
    │   ├── StoreFormatError      written by a newer version, or not a store
    │   ├── StoreDamagedError     a file is truncated, empty or contradicts its name
    │   └── StoreWriteError       disk full, read-only, no permission
    ├── ArmChangedError           an arm's name belongs to other parameters        (exit 2)
    ├── NoArmsError               there is no active arm, or no two to compare     (exit 2)
    ├── RequestReusedError        an idempotency key belongs to another request    (exit 2)
    ├── RewardError               a reward is not a number in [0, 1]               (exit 2)
    ├── WrongUserError            a reward names another user than its decision    (exit 2)
    ├── FeedbackRefusedError      a rating or comparison breaks a rule             (exit 2)
    ├── InteractionNotFoundError  no logged answer has that id                     (exit 2)
    ├── AdapterRefusedError       an adapter cannot change to that state           (exit 2)
    ├── AdapterNotFoundError      no registered adapter has that version           (exit 2)
    ├── TrainingFailedError       a training round produced no usable adapter      (exit 1)
    ├── PolicyCheckpointError     a policy's file is damaged, or another system's  (exit 2)
    ├── PolicyDecisionNotFoundError  the policy has no decision with that id       (exit 2)
    ├── PolicyRequestError        a request breaks a rule of the policy            (exit 2)
    ├── PolicyBusyError           an update runs, or another process serves it     (exit 1)
    ├── QueryError                the SQL is wrong                                 (exit 2)
    ├── RunNotFoundError          no run, or more than one, has that name          (exit 2)
    ├── LeaseHeldError            another process optimizes this system            (exit 1)
    ├── ResumeError               the run cannot resume: its files changed         (exit 2)
    ├── NoRewardError             a run ended without a configuration to return    (exit 1)
    ├── RunInterruptedError       Ctrl-C or cancellation; paid answers are kept    (exit 130)
    ├── EndpointDownError         an endpoint stopped answering                    (exit 1)
    ├── NotificationError         a notification was not delivered                 (exit 1)
    ├── PrefectServerError        Prefect's server cannot be reached or started    (exit 1)
    ├── WorkerLostError           a process that evaluates candidates has died     (exit 1)
    └── EvaluationFault           one cell failed: usually data, seldom raised
        ├── CandidateFault        caused by the candidate: reward 0
        ├── InfrastructureFault   rate limit, network, server: missing, retried
        └── EvaluatorFault        a metric raised: missing

Messages name the key, the rule, the value and the fix, in that order.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Self

from convergence_core.records import FaultName, RateInfo, Usage


class ConvergenceError(Exception):
    """Base class of all deliberate errors of the product; displayed without a traceback."""

    exit_code: ClassVar[int] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake in a configuration or a test-case file.

    Example:
        >>> print(Problem(key="budget.max_usd", rule="must be positive", value="-1", fix="Raise it."))
        `budget.max_usd` must be positive, but got -1. Raise it.
    """

    key: str
    """Dotted path, e.g. ``search_space.parameters.temperature.max``; empty for the whole file."""
    rule: str
    """Rule that the value breaks, e.g. "must exceed `min`"."""
    value: str = ""
    """Offending value as text, shortened; empty if the key is missing."""
    fix: str
    """Suggested correction; never empty."""
    file: str | None = None
    """Path as the user gave it; ``None`` for a configuration from Python."""
    line: int | None = None
    """Line, from 1; ``None`` if unknown."""
    column: int | None = None
    """Column, from 1; ``None`` if unknown."""

    def __str__(self) -> str:
        """Render as ``file:line:column: key rule, but got value. fix``."""
        where = ":".join(
            str(part) for part in (self.file, self.line, self.column) if part is not None
        )
        statement = (
            f"`{self.key}` {self.rule}" if self.key else self.rule[:1].upper() + self.rule[1:]
        )
        got = f", but got {self.value}" if self.value else ""
        return f"{where + ': ' if where else ''}{statement}{got}. {self.fix}"


class BadInputError(ConvergenceError):
    """Base class of errors in user or caller input: a file, option, request or name."""

    exit_code = 2


class ProcessEnding(BaseException):
    """Signal to end the process, raised by a signal handler; no code handles it as a failure."""


class ConfigurationError(BadInputError):
    """Error in the configuration or a file that it names.

    Holds all problems, not only the first.
    """

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
        """Pickle the problems, because the message derives from them."""
        return type(self), (self.problems,)


def run_checks(checks: Iterable[Callable[[], object]]) -> None:
    """Run all checks.

    Raises:
        ConfigurationError: A check fails; holds the distinct problems of all checks.
    """
    problems: list[Problem] = []
    for check in checks:
        try:
            check()
        except ConfigurationError as error:
            problems += error.problems
    if problems:
        raise ConfigurationError(list(dict.fromkeys(problems)))


class ForeignPackageError(ConvergenceError):
    """An installed package has the name of one of ours but lacks our marker."""


class StoreError(ConvergenceError):
    """The results store cannot be used."""


class StoreFormatError(StoreError):
    """The store has a newer format, or the folder is not a store."""


class StoreDamagedError(StoreError):
    """A file of the store is truncated, empty or not what its name states."""


class StoreWriteError(StoreError):
    """A write failed: disk full, read-only folder or no permission. Published rows are safe."""


class ArmChangedError(BadInputError):
    """An arm has the name of an existing arm with other parameters."""


class NoArmsError(BadInputError, LookupError):
    """The system has no active arm, or no two arms to compare."""


class RequestReusedError(BadInputError):
    """An idempotency key belongs to an earlier, different request."""


class RewardError(BadInputError, ValueError):
    """A reward or signal is not a number in [0, 1]; nothing is stored."""


class WrongUserError(BadInputError, ValueError):
    """The rewarded decision served another user; nothing is stored."""

    @classmethod
    def of(cls, decision_id: str, user_id: str) -> Self:
        """Return the error of a reward without naming the user whom the decision served."""
        return cls(
            f"`user_id` must be the user that decision {decision_id} served, but got {user_id!r}. "
            "Leave it out: the decision knows its user."
        )


class FeedbackRefusedError(BadInputError, ValueError):
    """A rating, comparison or logged answer breaks a rule; nothing is stored."""


class InteractionNotFoundError(BadInputError, LookupError):
    """The log has no answer with that id, or the answer was deleted."""


class AdapterRefusedError(BadInputError, ValueError):
    """An adapter cannot change to that state, or its files break a rule; nothing changes."""


class AdapterNotFoundError(BadInputError, LookupError):
    """The registry has no adapter with that version."""


class TrainingFailedError(ConvergenceError):
    """A training round produced no adapter that can be judged; nothing changes."""


class PolicyCheckpointError(BadInputError):
    """A policy's checkpoint is damaged, or has another embedding or other actions."""


class PolicyDecisionNotFoundError(BadInputError, LookupError):
    """The policy has no decision with that id, or has dropped it because of its age."""


class PolicyRequestError(BadInputError, ValueError):
    """A decision, outcome or checkpoint name breaks a rule of the policy; nothing changes."""


class PolicyBusyError(ConvergenceError):
    """Another request updates the policy, or another process serves it."""


class QueryError(BadInputError):
    """The SQL of a query is wrong."""


class RunNotFoundError(BadInputError):
    """No run, or more than one, matches the name."""


class LeaseHeldError(ConvergenceError):
    """Another live process holds the lease on this system."""


class ResumeError(BadInputError):
    """The run cannot resume because its files or its function changed."""


class NoRewardError(ConvergenceError):
    """A run ended, and no configuration has a reward."""


class RunInterruptedError(ConvergenceError):
    """A user or a cancellation stopped the run; paid answers are kept and the run can resume."""

    exit_code = 130


class EndpointDownError(ConvergenceError):
    """An endpoint or a function has stopped answering.

    Paid answers are kept and the run can resume.
    """


class NotificationError(ConvergenceError):
    """A notification did not reach its address."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether sending again may succeed."""


class PrefectServerError(ConvergenceError):
    """Prefect's server is unreachable, or a temporary server does not start."""


class WorkerLostError(ConvergenceError):
    """A worker process died during an evaluation; the journal keeps its paid answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Billed:
    """Cost of a complete but unusable answer, such as a refusal or an empty answer."""

    usage: Usage
    cost_usd: float | None
    """US dollars; ``None`` if the price is unknown."""
    price_version: str | None = None
    """Date of the price table behind ``cost_usd``; ``None`` if the target reported the cost."""
    model: str | None = None
    """Model name in the provider's answer."""


class EvaluationFault(ConvergenceError):  # noqa: N818 - data first, seldom raised
    """Failure of one cell. Targets and metrics raise it; the session records it as data."""

    fault: ClassVar[FaultName] = "candidate"

    def __init__(
        self, message: str, *, error_type: str, details: str = "", billed: Billed | None = None
    ) -> None:
        super().__init__(message)
        self.error_type = error_type
        """Short reason for tables, e.g. ``timeout``, ``http_500``, ``ValueError``."""
        self.details = details
        """Original traceback or body, redacted and shortened; empty if there is none."""
        self.billed = billed
        """Cost of the call; ``None`` if no charge is known."""


class CandidateFault(EvaluationFault):
    """The candidate caused the failure: bad answer, exception in user code, permanent 4xx."""

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
        """Seconds that the server asks to wait; ``None`` if it names no time."""
        self.may_be_billed = may_be_billed
        """Whether the request was sent without a known outcome, so that it may have cost money."""
        self.rate = rate
        """The server's rate limits; ``None`` without an answer or without limits in it."""


class EvaluatorFault(EvaluationFault):
    """A metric raised or returned a non-finite value: the cell is missing, never 0."""

    fault = "evaluator"
