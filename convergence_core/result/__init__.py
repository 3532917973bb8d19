"""Result of a run: one value for files, artifacts, commands and Python callers."""

from convergence_core.records import Estimate
from convergence_core.result.answers import CaseAnswer, CaseAnswers, case_names, worst_first
from convergence_core.result.candidates import CandidateReport, GateReport, LeaderboardRow, Within
from convergence_core.result.run_result import (
    CurvePoint,
    Failure,
    Front,
    FrontPoint,
    MetricInfo,
    ResultStatus,
    RoleCost,
    RunResult,
)
from convergence_core.result.verdict import Verdict, is_offline, result_json, verdict_of

__all__ = [
    "CandidateReport",
    "CaseAnswer",
    "CaseAnswers",
    "CurvePoint",
    "Estimate",
    "Failure",
    "Front",
    "FrontPoint",
    "GateReport",
    "LeaderboardRow",
    "MetricInfo",
    "ResultStatus",
    "RoleCost",
    "RunResult",
    "Verdict",
    "Within",
    "case_names",
    "is_offline",
    "result_json",
    "verdict_of",
    "worst_first",
]
