"""Migrates ``society.llm``: the model that judges has a section of its own now."""

from typing import Any

from convergence.compat.migration.migrator import Migrator, Section

_OLD = ("society.llm",)
"""One name, so that it is told at the top level: the section itself goes."""
_DEFAULTS = {
    "model": "gemini/gemini-2.0-flash-exp",
    "api_key_env": "GEMINI_API_KEY",
    "temperature": 0.7,
    "max_tokens": 1000,
}
"""What the original took for a key that was not written."""


def move_llm(m: Migrator, data: Section) -> None:
    """Move the original's ``society.llm`` to ``llm`` if a judge asks it; else say where it goes."""
    society = data.get("society")
    if not isinstance(society, dict) or not isinstance(society.get("llm"), dict):
        return
    society = data["society"] = dict(society)
    old: Section = society.pop("llm")
    if data.get("llm") is not None:
        m.drop(_OLD, "`llm` says it")
    elif not _has_judge(data):
        reason = "nothing asks it; write it as `llm` beside a metric of type `llm_judge`"
        m.drop(_OLD, reason)
    else:
        data["llm"] = _migrated(m, old)
    if not society:
        del data["society"]


def _has_judge(data: Section) -> bool:
    evaluation = data.get("evaluation")
    metrics: Any = evaluation.get("metrics") if isinstance(evaluation, dict) else None
    return isinstance(metrics, dict) and any(
        isinstance(metric, dict)
        and metric.get("type") == "llm_judge"
        and not {"rubric", "rubric_path"}.isdisjoint(metric)
        for metric in metrics.values()
    )


def _migrated(m: Migrator, old: Section) -> Section:
    new = {key: value for key, value in old.items() if value is not None}
    if "base_url" in new:
        new.setdefault("endpoint", new["base_url"])
        del new["base_url"]
    new = m.keep_known(new, ("llm",))
    m.say(("llm",), "was `society.llm`")
    for key, value in _DEFAULTS.items():
        new.setdefault(key, value)
    return new
