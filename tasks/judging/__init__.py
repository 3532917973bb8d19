"""Judges: metrics of type ``llm_judge``, whose value a chat model gives."""

from tasks.judging.judge import INCONSISTENT, Judgement, LlmJudge, call_count
from tasks.judging.making import (
    champion_problems,
    judge_configs,
    label_problems,
    llm_of,
    make_judges,
    problems,
)
from tasks.judging.prompts import EVALUATOR_VERSION

__all__ = [
    "EVALUATOR_VERSION",
    "INCONSISTENT",
    "Judgement",
    "LlmJudge",
    "call_count",
    "champion_problems",
    "judge_configs",
    "label_problems",
    "llm_of",
    "make_judges",
    "problems",
]
