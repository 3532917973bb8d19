"""Judges: metrics of type ``llm_judge``, whose value a chat model gives."""

from tasks.metrics.judge.factory import (
    champion_problems,
    label_problems,
    make_judges,
    problems,
)
from tasks.metrics.judge.judge import INCONSISTENT, LlmJudge, VoteSummary, call_count
from tasks.metrics.judge.prompts import EVALUATOR_VERSION

__all__ = [
    "EVALUATOR_VERSION",
    "INCONSISTENT",
    "LlmJudge",
    "VoteSummary",
    "call_count",
    "champion_problems",
    "label_problems",
    "make_judges",
    "problems",
]
