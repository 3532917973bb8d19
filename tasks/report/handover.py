"""The recommended configuration as files that programs read."""

import json
from collections.abc import Mapping
from typing import TextIO

import yaml

from convergence_core.config.models import ExportConfig
from convergence_core.records import Json, Role
from convergence_core.result import CandidateReport, Difference, Estimate, RunResult
from tasks.report import phrases

ENDINGS: Mapping[str, str] = {"python": "py", "json": "json", "yaml": "yaml"}
"""Ending of the exported file by its format."""

_MEASURED: Mapping[Role, str] = {
    "holdout": "held-out cases, which the search never saw",
    "fresh": "search cases, asked again after the choice",
    "search": "search cases, biased upward by selection",
}


def best_config(result: RunResult, winner: CandidateReport) -> dict[str, Json]:
    """Return ``best_config.json``: the original's shape, with what the number rests on."""
    role, value = winner.headline()
    return {
        "_README": {
            "description": "Configuration recommended by this run; a recommendation, not a "
            "promotion decision.",
            "how_to_use": "Use the values under `config` as the system's settings.",
            "score_achieved": value.mean,
            "score_scale": "mean reward from 0 (worst possible) to 1 (perfect)",
            "timestamp": phrases.iso(result.ended_us),
            "optimization_run": result.label,
            "test_cases_evaluated": value.n_cases,
        },
        "config": dict(winner.params),
        "interval": {**_estimate(value), "measured_on": _MEASURED[role]},
        "holdout": _optional(winner.holdout),
        "fresh": _optional(winner.fresh),
        "search": _optional(winner.search),
        "baseline": _baseline(result),
    }


def write_export(
    stream: TextIO, result: RunResult, winner: CandidateReport, export: ExportConfig
) -> None:
    """Write the recommended configuration alone, in the form that ``output`` asks for."""
    params = dict(winner.params)
    note = f"Configuration recommended by run {result.label}, {phrases.iso(result.ended_us)}."
    match export.format:
        case "json":
            stream.write(json.dumps(params, indent=2) + "\n")
        case "yaml":
            stream.write(f"# {note}\n" + yaml.safe_dump(params, sort_keys=False))
        case "python":
            lines = [f"    {name!r}: {value!r}," for name, value in params.items()]
            body = "\n".join(["BEST_CONFIG = {", *lines, "}"])
            stream.write(f'"""{note}"""\n\n{body}\n')


def _baseline(result: RunResult) -> Json:
    if result.baseline is None:
        return None
    return {
        "config": dict(result.baseline.params),
        "holdout": _optional(result.baseline.holdout),
        "fresh": _optional(result.baseline.fresh),
        "search": _optional(result.baseline.search),
        "difference_holdout": _optional(result.difference),
        "difference_fresh": _optional(result.difference_fresh),
    }


def _optional(value: Estimate | Difference | None) -> Json:
    return None if value is None else _estimate(value)


def _estimate(value: Estimate | Difference) -> dict[str, Json]:
    return {
        "mean": value.mean,
        "low": value.low,
        "high": value.high,
        "level": value.level,
        "n_cases": value.n_cases,
    }
