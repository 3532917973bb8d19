"""The result files of a run.

Layout under ``output.save_path``::

    <label>/best_config.json  detailed_results.json        format json
    <label>/explanation.json                               also json, if a configuration was found
    <label>/front.json                                     also json, for a Pareto run
    <label>/experiments.csv   detailed_results.csv         format csv
    <label>/report.md                                      format markdown
    <label>/report.html                                    format html
    <label>/prompts/NAME.txt  NAME.given.txt               prompts written for NAME, and originals
    best_config.json  detailed_results.json  report.md     copies of the latest run's files
    latest                    link to the latest <label>, or latest.txt with its name
    best_config.py            only the recommended configuration

Each file is written under a temporary name and renamed, so readers never see a partial file.
"""

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO, TypeAlias

from convergence_core.config import Configuration
from convergence_core.records import Case, Json, fields_of
from convergence_core.result import CandidateReport, Estimate, RunResult, verdict_of
from tasks.report import phrases
from tasks.report.answers import reported_answers
from tasks.report.atomic_files import atomic_text, point_to_latest
from tasks.report.experiments import (
    Experiment,
    experiments,
    write_detailed_csv,
    write_detailed_json,
    write_experiments_csv,
)
from tasks.report.markdown import report_markdown
from tasks.report.page import report_html
from tasks.store.tables.parquet_store import ParquetStore

Write: TypeAlias = str | Callable[[TextIO], None]
"""Content of a file, or a function that writes it."""


def write_results(
    result: RunResult,
    store: ParquetStore,
    configuration: Configuration,
    base_dir: Path,
    *,
    cases: Iterable[Case] | None = None,
) -> RunResult:
    """Write the configured result files; return the result with their paths and answers.

    Writing again replaces them. Without a recommended candidate, ``best_config.json`` and the
    exported configuration are not written.

    Args:
        result: result of the run.
        store: store with the run's evaluations.
        configuration: configuration of the run.
        base_dir: base folder of the configuration's relative paths.
        cases: test cases, for inputs and expected values. ``None`` shows requests in
            ``detailed_results.json`` and reports no answers.

    Raises:
        StoreWriteError: a file cannot be written.
    """
    if cases is not None:
        cases = tuple(cases)
        result = replace(result, answers=reported_answers(result, store, configuration, cases))
    output = configuration.output
    root = base_dir / output.save_path
    folder = root / result.label
    files: dict[str, str] = {}
    for name, write in _writers(result, store, configuration, cases).items():
        with atomic_text(folder / name) as stream:
            stream.write(write) if isinstance(write, str) else write(stream)
        files[name] = str(folder / name)
    if files:
        point_to_latest(folder)
        _copy_latest(folder, files)
    if result.winner is not None:
        path = root / "best_config.py"
        with atomic_text(path) as stream:
            stream.write(_module_text(result, result.winner))
        files["export"] = str(path)
    return replace(result, files=files)


LATEST_FILES = ("best_config.json", "detailed_results.json", "report.md")
"""Files copied to the results folder, where programs of version 0.1 expect them."""


def _copy_latest(folder: Path, files: Mapping[str, str]) -> None:
    for name in LATEST_FILES:
        if name in files:
            latest = folder.parent / name
            with Path(files[name]).open(encoding="utf-8") as source, atomic_text(latest) as to:
                shutil.copyfileobj(source, to)


def _writers(
    result: RunResult,
    store: ParquetStore,
    configuration: Configuration,
    cases: Iterable[Case] | None,
) -> Mapping[str, Write]:
    """Return file name → content or its writer."""
    output = configuration.output
    writers: dict[str, Write] = {}
    rows: list[Experiment] = []
    if {"json", "csv"} & {*output.formats}:
        rows = experiments(store, result.run_id)
    if "json" in output.formats:
        by_id = None if cases is None else {case.case_id: case for case in cases}
        keep_text = configuration.storage.keep_text
        for name, content in _json_files(result).items():
            writers[name] = json.dumps(content, indent=2, allow_nan=False) + "\n"
        writers["detailed_results.json"] = lambda out: write_detailed_json(
            out, store, result.run_id, rows, by_id, keep_text=keep_text
        )
    if "csv" in output.formats:
        writers["experiments.csv"] = lambda out: write_experiments_csv(out, rows)
        writers["detailed_results.csv"] = lambda out: write_detailed_csv(
            out, store, result.run_id, rows
        )
    for name, value in texts_of_winner(result, configuration):
        writers[f"prompts/{name}.txt"] = value
    if "markdown" in output.formats:
        writers["report.md"] = report_markdown(result)
    if "html" in output.formats:
        writers["report.html"] = report_html(result)
    return writers


def texts_of_winner(result: RunResult, configuration: Configuration) -> Iterator[tuple[str, str]]:
    """Yield name and content of each recommended written prompt, and of its original."""
    given = (
        {edge.parameter: edge.parent for edge in reversed(result.prompts.family)}
        if (result.prompts is not None)
        else {}
    )
    for name, parent in given.items():
        if result.winner is not None and name in configuration.search_space.parameters:
            yield name, str(result.winner.params[name])
            yield f"{name}.given", parent


def _json_files(result: RunResult) -> dict[str, Json]:
    """Return the contents of the small JSON files."""
    contents: dict[str, Json] = {}
    if result.winner is not None:
        contents["best_config.json"] = _best_config(result, result.winner)
    if result.explanation is not None or result.front is not None:
        value = result.to_json()
        if result.explanation is not None:
            contents["explanation.json"] = {key: value[key] for key in ("effects", "explanation")}
        if result.front is not None:
            contents["front.json"] = value["front"]
    return contents


# -- the recommended configuration, for programs


def _best_config(result: RunResult, winner: CandidateReport) -> dict[str, Json]:
    """Return ``best_config.json``: version 0.1's shape with the evidence behind the score."""
    (role, value), baseline = winner.headline(), result.baseline
    use = "Use the values under `config` as the system's settings."
    return {
        "_README": {
            "description": f"Configuration {result.title} by this run. {verdict_of(result).sentence}",
            "how_to_use": use if result.met_champion else verdict_of(result).next_step,
            "score_achieved": value.mean,
            "score_scale": "mean reward from 0 (worst possible) to 1 (perfect)",
            "timestamp": phrases.iso(result.ended_us),
            "optimization_run": result.label,
            "test_cases_evaluated": value.n_cases,
        },
        "config": dict(winner.params),
        "interval": {**(_numbers(value) or {}), "measured_on": phrases.MEASURED_ON[role]},
        **_estimates(winner),
        "baseline": None
        if baseline is None
        else {
            "config": dict(baseline.params),
            **_estimates(baseline),
            "difference_holdout": _numbers(result.difference),
            "difference_fresh": _numbers(result.difference_fresh),
        },
        "best_found": None
        if result.challenger is None
        else {"config": dict(result.challenger.params), **_estimates(result.challenger)},
    }


def _module_text(result: RunResult, winner: CandidateReport) -> str:
    """Return the recommended configuration as a Python module."""
    note = (
        f"{verdict_of(result).sentence} {result.title.capitalize()} by run {result.label}, "
        f"{phrases.iso(result.ended_us)}."
    )
    lines = [f"    {name!r}: {value!r}," for name, value in winner.params.items()]
    body = "\n".join(["BEST_CONFIG = {", *lines, "}"])
    return f'"""{note}"""\n\n{body}\n'


def _estimates(report: CandidateReport) -> dict[str, Json]:
    return {role: _numbers(report.estimate(role)) for role in phrases.MEASURED_ON}


def _numbers(value: Estimate | None) -> dict[str, Json] | None:
    names = ("mean", "low", "high", "level", "n_cases")
    return None if value is None else fields_of(value, *names)
