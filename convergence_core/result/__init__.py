"""Result of a run: one value for files, artifacts, commands and Python callers."""

from convergence_core.result.answers import CaseAnswer, CaseAnswers, worst_first
from convergence_core.result.candidates import (
    CandidateReport,
    Difference,
    Estimate,
    GateReport,
    LeaderboardRow,
    Within,
)
from convergence_core.result.run_result import (
    CurvePoint,
    Failure,
    Front,
    FrontPoint,
    MetricInfo,
    ResultStatus,
    RoleCost,
    RunResult,
    VolumePoint,
)

__all__ = [
    "CandidateReport",
    "CaseAnswer",
    "CaseAnswers",
    "CurvePoint",
    "Difference",
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
    "VolumePoint",
    "Within",
    "worst_first",
]
