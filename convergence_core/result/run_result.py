"""``RunResult``: complete result of a finished or stopped run."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal

from convergence_core.bandit.report import Routing
from convergence_core.explanation.records import Effect, Explanation
from convergence_core.judges.report import JudgeReport
from convergence_core.prompts.report import PromptReport
from convergence_core.records import Estimate, Json, Params, Role, canonical_json
from convergence_core.result.answers import CaseAnswers
from convergence_core.result.candidates import CandidateReport, GateReport, LeaderboardRow, Within
from convergence_core.rlp.report import ThinkingReport
from convergence_core.sao.report import PreferenceReport
from convergence_core.search.source_report import SourceReport

if TYPE_CHECKING:
    from pydantic import TypeAdapter

ResultStatus = Literal["done", "budget", "stopped"]
"""``done``: the search finished; ``budget``: a limit was reached; ``stopped``: by a user or
signal."""


LACK_TAG: Final = "champion_not_compared"
"""Tag of a run, and fact of its result, with the reason why its space excludes the champion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """State of the search after a generation."""

    generation: int
    """Generation, from 0."""
    n_evaluations: int
    """Evaluations in this generation."""
    cumulative_calls: int
    """Calls of the run so far, including retries."""
    best_mean: float | None
    """Posterior mean of the search's leader, which may not be recommended; ``None`` without
    one."""
    low: float | None
    high: float | None
    asked_mean: float | None = None
    """Mean posterior mean of this generation's candidates; ``None`` without a reward."""
    cumulative_usd: float | None
    """Total of known prices so far; ``None`` if no call has one."""
    n_unpriced: int = 0
    """Calls so far that ``cumulative_usd`` leaves out, since their price is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Evaluations with the same failure."""

    reason: str
    """Short reason, e.g. ``http_500``."""
    fault: str | None
    """``candidate`` counts as reward 0, others as missing; ``None`` means skipped."""
    n: int
    example: str | None
    """Shortened error message of one of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """Role of a metric in the reward."""

    name: str
    direction: Literal["higher", "lower"]
    weight: float
    """Share in the reward, relative to the other metrics; 0 means displayed only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One candidate of a Pareto run, from its search cells."""

    candidate_id: str
    label: str
    params: Params
    means: Mapping[str, float]
    """Objective → posterior mean on its scale, in [0, 1]; 1 is good."""
    lows: Mapping[str, float]
    """Objective → lower end of its credible interval."""
    highs: Mapping[str, float]
    n_cells: int
    """Number of rewards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Front of a Pareto run: trade-offs that no evaluated candidate beats in every objective."""

    objectives: tuple[str, ...]
    """Metrics with a positive weight."""
    level: float
    """Probability that an interval contains the mean."""
    points: tuple[FrontPoint, ...]
    """Candidates with undominated posterior means, best in the first objective first."""
    dominated: tuple[FrontPoint, ...] = ()
    """Dominated candidates that probably satisfy the hard constraints, in the same order; possibly
    truncated."""
    n_dominated: int = 0
    n_infeasible: int = 0
    """Candidates that probably violate a hard constraint too often; in neither list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCost:
    """Cost of one role on one model, summed from the ledger."""

    purpose: str
    """Purpose, such as ``evaluation``, ``judge`` or ``champion``."""
    provider: str
    model: str | None
    n_calls: int
    """Attempts, including retries and lost ones, excluding stored answers."""
    n_failed: int
    n_reused: int
    """Answers of this run used again, at no cost."""
    n_from_other_runs: int
    """Answers paid by an earlier run, at no cost."""
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    """Total of known prices; ``None`` if no price is known."""
    n_unpriced: int
    """Answered attempts of unknown price, which ``cost_usd`` excludes."""
    maybe_usd: float
    """Worst-case cost of attempts with an unknown outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Complete result of a finished or stopped run."""

    run_id: str
    label: str
    system: str
    status: ResultStatus
    reason: str
    algorithm: str
    seed: int
    generations_run: int
    n_candidates: int
    """Distinct candidates evaluated in the search."""
    n_evaluations: int
    """Cells with an outcome, including the final test, excluding skipped ones."""
    n_calls: int
    """Calls made, including retries, excluding cached answers."""
    n_cached: int
    """Answers that were already paid."""
    n_failed: int
    """Evaluations without an ``ok`` status, excluding skipped ones."""
    n_missing: int
    """Evaluations without a reward because of the network, a server or a metric."""
    n_skipped: int
    """Evaluations that a budget or a stop prevented."""
    never_called: tuple[str, ...] = ()
    """Configured purposes that never made a call."""
    n_maybe_paid: int = 0
    """Calls in flight when a process died, which may have been paid."""
    cost_usd: float | None
    """Total of known prices; ``None`` if no call has one."""
    judges: tuple[JudgeReport, ...] = ()
    """Reports on the metrics with a model as judge."""
    costs: tuple[RoleCost, ...] = ()
    """Costs by role and model, most expensive first."""
    started_us: int
    ended_us: int
    n_search_cases: int
    n_holdout_cases: int
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts behind the numbers, e.g. versions and hashes."""
    metrics: tuple[MetricInfo, ...] = ()
    winner: CandidateReport | None
    """Recommended candidate; ``None`` if every reward comes from a failure."""
    challenger: CandidateReport | None = None
    """Search's best candidate if the champion or the defaults are recommended instead, because
    held-out cases do not support it (``convergence_core.result.verdict``). ``None`` if the
    search's best is recommended."""
    winner_reason: str = ""
    """Reason for the recommendation, in words."""
    final_look: str = ""
    """Why the final test is missing or incomplete, in words without a full stop; empty if it is
    complete."""
    baseline: CandidateReport | None = None
    """User's defaults; ``None`` if the configuration has none, or the run never evaluated them."""
    champion: CandidateReport | None = None
    """Champion at the start of the run; ``None`` if there was none, or the run never evaluated
    it."""
    has_defaults: bool = False
    difference: Estimate | None = None
    """Search's best minus default on held-out cases."""
    difference_fresh: Estimate | None = None
    """Search's best minus default on the search cases, evaluated again."""
    gate: GateReport | None = None
    """Gate's verdict; ``None`` without an opponent or held-out cases."""
    within: Within | None = None
    leaderboard: tuple[LeaderboardRow, ...] = ()
    """Ranked candidates, truncated in a large run; ``n_candidates`` counts all."""
    front: Front | None = None
    """``None`` unless this is a Pareto run with rewards."""
    curve: tuple[CurvePoint, ...] = ()
    effects: tuple[Effect, ...] = ()
    """Effects of each parameter that can vary, by decreasing share."""
    routing: Routing | None = None
    """Estimated gain of routing by case; ``None`` in progress or without a candidate."""
    explanation: Explanation | None = None
    """Explanation of the recommendation; ``None`` in progress or without a reward."""
    thinking: ThinkingReport | None = None
    """Report on hypotheses; ``None`` without any."""
    preferences: PreferenceReport | None = None
    """Report on preferences; ``None`` without any."""
    prompts: PromptReport | None = None
    """Report on prompt writing; ``None`` without any."""
    sources: tuple[SourceReport, ...] = ()
    """Report per source of settings; empty if there is only one source."""
    named_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Parameter → label → full value, for values that labels shorten."""
    failures: tuple[Failure, ...] = ()
    """Failures, most frequent first."""
    answers: tuple[CaseAnswers, ...] = ()
    """Answers of the defaults (first) and the recommended candidate (second), with shortened
    texts:
    the worst held-out cases, then the worst others. Empty in progress."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Result file → path; empty until the files are written."""

    def gap(self, role: Role) -> Estimate | None:
        """Return the search's best minus default on a role's cells; ``None`` for ``search``."""
        return {"search": None, "fresh": self.difference_fresh, "holdout": self.difference}[role]

    @property
    def all_failed(self) -> bool:
        """Whether there are evaluations and all of them failed."""
        return 0 < self.n_evaluations == self.n_failed

    @property
    def level(self) -> float:
        """Level of the intervals of this result, e.g. 0.95."""
        estimate = None if self.winner is None else self.winner.search
        return 0.95 if estimate is None else estimate.level

    @property
    def best(self) -> CandidateReport | None:
        """Search's best candidate, whose gate verdict is ``gate``."""
        return self.challenger or self.winner

    @property
    def names(self) -> dict[str, str]:
        """Candidate → display name, from the leaderboard and the reports."""
        reports = [
            report
            for report in (self.winner, self.challenger, self.baseline, self.champion)
            if report is not None
        ]
        return {
            **{row.candidate_id: row.label for row in self.leaderboard},
            **{report.candidate_id: report.label for report in reports},
        }

    @property
    def met_champion(self) -> bool:
        """Whether the run could compare with the champion, if there was one."""
        return LACK_TAG not in self.facts

    @property
    def title(self) -> Literal["recommended", "found"]:
        """``found`` if the run could not compare with the champion."""
        return "recommended" if self.met_champion else "found"

    @property
    def is_recommended(self) -> bool:
        """Whether the run recommends the search's best."""
        return self.challenger is None and self.met_champion

    @property
    def roles(self) -> dict[str, CandidateReport]:
        """Role → configuration: recommended, found (if different) and default."""
        reports = {
            "recommended": self.winner if self.met_champion else None,
            "found": None if self.is_recommended else self.best,
            "default": self.baseline,
        }
        return {role: report for role, report in reports.items() if report is not None}

    @property
    def rivals(self) -> dict[str, CandidateReport]:
        """Name → configuration compared with the search's best: defaults and champion."""
        reports = {"default": self.baseline, "champion": self.champion}
        by_id = {
            report.candidate_id: (name, report)
            for name, report in reversed(reports.items())
            if report is not None and self.best is not None
            if report.candidate_id != self.best.candidate_id
        }
        return dict(reversed(by_id.values()))

    @property
    def best_is_baseline(self) -> bool:
        """Whether the search's best is the default configuration."""
        return (
            self.best is not None
            and self.baseline is not None
            and self.best.candidate_id == self.baseline.candidate_id
        )

    def to_json(self) -> dict[str, Json]:
        """Return JSON values for ``from_json``.

        Raises:
            ValueError: A number is NaN or infinite.
        """
        value: dict[str, Json] = json.loads(canonical_json(_adapter().dump_python(self)))
        return value

    @classmethod
    def from_json(cls, value: "Json | str") -> "RunResult":
        """Rebuild a result from ``to_json``, as a value or a JSON string.

        Raises:
            ValueError: The value does not come from ``to_json``.
        """
        if isinstance(value, str):
            return _adapter().validate_json(value)
        return _adapter().validate_python(value)


@cache
def _adapter() -> "TypeAdapter[RunResult]":
    """Return the adapter; the delayed import of Pydantic keeps start-up fast."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(RunResult)
