"""``RunResult``: everything that a finished or stopped run has found."""

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
"""``done``: the search ended by itself; ``budget``: a cap was reached; ``stopped``: from outside."""


LACK_TAG: Final = "champion_not_compared"
"""Tag of a run, and fact of its result, that says why its space does not hold the champion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """What was known after a generation."""

    generation: int
    """From 0."""
    n_evaluations: int
    """Of this generation."""
    cumulative_calls: int
    """Calls of the run so far, retries included."""
    best_mean: float | None
    """Posterior mean of the search's leader, whatever is handed over; ``None`` means none yet."""
    low: float | None
    high: float | None
    asked_mean: float | None = None
    """Mean of the posterior means, after it, of this generation's candidates; ``None`` if no
    reward was seen."""
    cumulative_usd: float | None
    """Known prices so far; ``None`` if no call had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Evaluations that ended alike."""

    reason: str
    """Short reason, e.g. ``http_500``."""
    fault: str | None
    """``candidate``: counted as reward 0; other faults: missing. ``None`` means skipped, not
    asked."""
    n: int
    example: str | None
    """Error text of one of them, shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """How a metric enters the reward."""

    name: str
    direction: Literal["higher", "lower"]
    weight: float
    """Share in the reward, relative to the other metrics'; 0: shown only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontPoint:
    """One candidate of a Pareto run, by its search cells."""

    candidate_id: str
    label: str
    params: Params
    means: Mapping[str, float]
    """Objective → posterior mean on its scale, in [0, 1]; 1 is good."""
    lows: Mapping[str, float]
    """Objective → lower end of its credible interval."""
    highs: Mapping[str, float]
    n_cells: int
    """Rewards behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What a Pareto run found: trade-offs that no evaluated candidate beats in every objective."""

    objectives: tuple[str, ...]
    """Metrics with a weight."""
    level: float
    """Probability that an interval holds the mean."""
    points: tuple[FrontPoint, ...]
    """Candidates whose posterior means none other dominates, best in the first objective first."""
    dominated: tuple[FrontPoint, ...] = ()
    """The others that probably keep the hard constraints, in the same order; the first of many."""
    n_dominated: int = 0
    n_infeasible: int = 0
    """Candidates that probably break a hard constraint too often; in neither list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCost:
    """What one role spent on one model: sums over the ledger, which is where money comes from."""

    purpose: str
    """``evaluation``, ``judge``, ``champion``…"""
    provider: str
    model: str | None
    n_calls: int
    """Attempts made, retries and lost ones included, stored answers not."""
    n_failed: int
    n_reused: int
    """Answers of this run used again; they cost nothing."""
    n_from_other_runs: int
    """Answers that an earlier run had paid for; they cost nothing."""
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    reasoning_tokens: int | None
    cost_usd: float | None
    """Sum of known prices; ``None`` if no price is known."""
    n_unpriced: int
    """Answered attempts whose price is unknown; nothing of them is in ``cost_usd``."""
    maybe_usd: float
    """Worst case of attempts whose end no one saw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """Everything a finished or stopped run has found."""

    run_id: str
    label: str
    system: str
    status: ResultStatus
    reason: str
    algorithm: str
    seed: int
    generations_run: int
    n_candidates: int
    """Distinct candidates that the search evaluated."""
    n_evaluations: int
    """Cells with an outcome, re-estimation included, skipped ones left out."""
    n_calls: int
    """Calls made, retries included, cached answers not."""
    n_cached: int
    """Answers that had been paid for before."""
    n_failed: int
    """Evaluations that ended without an ``ok`` status, skipped ones left out."""
    n_missing: int
    """Evaluations without a reward: a fault of network, server or metric."""
    n_skipped: int
    """Evaluations that a budget or a stop prevented."""
    never_called: tuple[str, ...] = ()
    """Purposes that the configuration asks for and that never made a call."""
    n_maybe_paid: int = 0
    """Calls in flight when a process died: perhaps paid, perhaps not."""
    cost_usd: float | None
    """Sum of known prices; ``None`` if no call had one."""
    judges: tuple[JudgeReport, ...] = ()
    """What is known of the metrics that a model judges."""
    costs: tuple[RoleCost, ...] = ()
    """By role and model, most expensive first."""
    started_us: int
    ended_us: int
    n_search_cases: int
    n_holdout_cases: int
    facts: Mapping[str, str] = field(default_factory=dict)
    """What the numbers depend on, e.g. versions and hashes."""
    metrics: tuple[MetricInfo, ...] = ()
    winner: CandidateReport | None
    """The recommended candidate; ``None`` if no candidate got a reward but for failures."""
    challenger: CandidateReport | None = None
    """The search's best where the champion, or else the defaults, is recommended instead of it,
    because held-out cases do not speak for it (``convergence_core.result.verdict``); ``None`` if the
    search's best is the recommended one."""
    winner_reason: str = ""
    """What the recommendation rests on, in words."""
    final_look: str = ""
    """Why the winner was not looked at again, or on fewer cells than planned, in words without a
    full stop; empty: it was as planned."""
    baseline: CandidateReport | None = None
    """The user's defaults; ``None`` if the configuration gives none, or the run never evaluated them."""
    champion: CandidateReport | None = None
    """The champion when the run began; ``None`` if there was none, or the run never evaluated it."""
    has_defaults: bool = False
    difference: Estimate | None = None
    """The search's best minus default on held-out cases."""
    difference_fresh: Estimate | None = None
    """Best minus default on the search cases, evaluated again."""
    gate: GateReport | None = None
    """``None`` if no one to compare with, or no held-out case."""
    within: Within | None = None
    leaderboard: tuple[LeaderboardRow, ...] = ()
    """First rows only in a large run; ``n_candidates`` counts all."""
    front: Front | None = None
    """``None`` means no Pareto run, or no candidate has a reward."""
    curve: tuple[CurvePoint, ...] = ()
    effects: tuple[Effect, ...] = ()
    """Of each parameter that can vary, that of the largest share first."""
    routing: Routing | None = None
    """What another candidate for each case would earn; ``None`` means in progress, or no candidate."""
    explanation: Explanation | None = None
    """Why this one was chosen; ``None`` if no candidate got a reward, or a run that continues."""
    thinking: ThinkingReport | None = None
    """What thoughts were worth; ``None`` if no one thought."""
    preferences: PreferenceReport | None = None
    """What preferences came to; ``None`` if none were written."""
    prompts: PromptReport | None = None
    """What writing prompts came to; ``None`` if nothing was written."""
    sources: tuple[SourceReport, ...] = ()
    """What each source of settings got and brought; empty if there is one alone."""
    named_values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Parameter → name in labels → the whole value, of values that labels only name."""
    failures: tuple[Failure, ...] = ()
    """Most frequent first."""
    answers: tuple[CaseAnswers, ...] = ()
    """What the defaults (first) and the recommended candidate (second) answered: the worst cases of
    the held-out ones, then of the others, with shortened texts; empty in progress."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Result file → path; empty until they are written."""

    def gap(self, role: Role) -> Estimate | None:
        """Return the search's best minus default on the cells of a role; none is made on search cells."""
        return {"search": None, "fresh": self.difference_fresh, "holdout": self.difference}[role]

    @property
    def all_failed(self) -> bool:
        """Whether there were evaluations, and every one of them failed."""
        return 0 < self.n_evaluations == self.n_failed

    @property
    def level(self) -> float:
        """Probability that an interval of this result covers its mean, e.g. 0.95."""
        estimate = None if self.winner is None else self.winner.search
        return 0.95 if estimate is None else estimate.level

    @property
    def best(self) -> CandidateReport | None:
        """The search's best, evaluated on the held-out cases."""
        return self.challenger or self.winner

    @property
    def names(self) -> dict[str, str]:
        """Candidate → name for people, of the leaderboard and those handed over."""
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
        """Whether a champion, if there was one, could be compared."""
        return LACK_TAG not in self.facts

    @property
    def title(self) -> Literal["recommended", "found"]:
        """``found``, if a champion could not be compared with what is handed over."""
        return "recommended" if self.met_champion else "found"

    @property
    def is_recommended(self) -> bool:
        """Whether the search's best is what the run recommends."""
        return self.challenger is None and self.met_champion

    @property
    def roles(self) -> dict[str, CandidateReport]:
        """Role → configuration: recommended, found (if that is another) and default."""
        reports = {
            "recommended": self.winner if self.met_champion else None,
            "found": None if self.is_recommended else self.best,
            "default": self.baseline,
        }
        return {role: report for role, report in reports.items() if report is not None}

    @property
    def rivals(self) -> dict[str, CandidateReport]:
        """Name → configuration that the search's best is compared with: defaults and champion."""
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
        """Whether the search's best is the default configuration itself."""
        return (
            self.best is not None
            and self.baseline is not None
            and self.best.candidate_id == self.baseline.candidate_id
        )

    def to_json(self) -> dict[str, Json]:
        """Return JSON values from which ``from_json`` makes an equal result.

        Raises:
            ValueError: a number is NaN or infinite.
        """
        value: dict[str, Json] = json.loads(canonical_json(_adapter().dump_python(self)))
        return value

    @classmethod
    def from_json(cls, value: "Json | str") -> "RunResult":
        """Rebuild a result from ``to_json``, or from its text.

        Raises:
            ValueError: the value was not made by ``to_json``.
        """
        if isinstance(value, str):
            return _adapter().validate_json(value)
        return _adapter().validate_python(value)


@cache
def _adapter() -> "TypeAdapter[RunResult]":
    """Pydantic is imported with the first result that is read or written."""
    from pydantic import TypeAdapter  # noqa: PLC0415

    return TypeAdapter(RunResult)
