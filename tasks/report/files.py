"""The result files of a run.

Layout under ``output.save_path``::

    <label>/best_config.json  detailed_results.json        format json
    <label>/explanation.json                               the same, if a configuration was found
    <label>/front.json                                     the same, of a Pareto run
    <label>/experiments.csv   detailed_results.csv         format csv
    <label>/report.md                                      format markdown
    <label>/report.html                                    format html
    latest                    link to the latest <label>, or latest.txt with its name
    best_config.py            (or .json, .yaml) the recommended configuration alone

Each file is written beside its place and renamed, so a reader never sees half of one.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from convergence_core.config import Configuration
from convergence_core.ports import Store
from convergence_core.records import Case
from convergence_core.result import RunResult
from tasks.report.atomic_files import atomic_text, point_to_latest
from tasks.report.experiments import (
    experiments,
    write_detailed_csv,
    write_detailed_json,
    write_experiments_csv,
)
from tasks.report.handover import ENDINGS, best_config, write_export
from tasks.report.markdown import report_markdown
from tasks.report.page import report_html

Write = Callable[[TextIO], None]


def write_results(
    result: RunResult,
    store: Store,
    configuration: Configuration,
    base_dir: Path,
    *,
    cases: Iterable[Case] | None = None,
) -> RunResult:
    """Write the files that ``output`` asks for and return the result with their paths.

    Doing it again replaces them. Without a recommended candidate, ``best_config.json`` and the
    exported configuration are not written.

    Args:
        result: what the run found.
        store: holds the run's evaluations.
        configuration: of the run.
        base_dir: folder that relative paths of the configuration start from.
        cases: test cases, whose inputs ``detailed_results.json`` shows; ``None``: it shows the
            requests made of them.

    Raises:
        StoreWriteError: a file cannot be written.
    """
    output = configuration.output
    root = base_dir / output.save_path
    folder = root / result.label
    files: dict[str, str] = {}
    for name, write in _writers(result, store, configuration, cases).items():
        with atomic_text(folder / name) as stream:
            write(stream)
        files[name] = str(folder / name)
    if files:
        point_to_latest(folder)
    export = output.export_best_config
    if export.enabled and result.winner is not None:
        path = root / f"best_config.{ENDINGS[export.format]}"
        if export.output_path is not None:
            path = base_dir / export.output_path
        with atomic_text(path) as stream:
            write_export(stream, result, result.winner, export)
        files["export"] = str(path)
    return replace(result, files=files)


def _writers(
    result: RunResult,
    store: Store,
    configuration: Configuration,
    cases: Iterable[Case] | None,
) -> Mapping[str, Write]:
    """Return what is to be written, by file name."""
    output = configuration.output
    writers: dict[str, Write] = {}
    if {"json", "csv"} & {*output.formats}:
        known = {report.candidate_id for report in (result.winner, result.baseline) if report}
        rows = experiments(
            store, result.run_id, keep_all=output.save_all_experiments, always=sorted(known)
        )
    if "json" in output.formats:
        by_id = None if cases is None else {case.case_id: case for case in cases}
        keep_text = configuration.storage.keep_text
        winner = result.winner
        if winner is not None:
            content = best_config(result, winner)
            writers["best_config.json"] = lambda out: _write_json(out, content)
        if result.explanation is not None:
            told = result.to_json()
            why = {key: told[key] for key in ("effects", "explanation")}
            writers["explanation.json"] = lambda out: _write_json(out, why)
        if result.front is not None:
            front = result.to_json()["front"]
            writers["front.json"] = lambda out: _write_json(out, front)
        writers["detailed_results.json"] = lambda out: write_detailed_json(
            out, store, result.run_id, rows, by_id, keep_text=keep_text
        )
    if "csv" in output.formats:
        writers["experiments.csv"] = lambda out: write_experiments_csv(out, rows)
        writers["detailed_results.csv"] = lambda out: write_detailed_csv(
            out, store, result.run_id, rows
        )
    if "markdown" in output.formats:
        writers["report.md"] = lambda out: _write(out, report_markdown(result))
    if "html" in output.formats:
        page = report_html(result, output.visualizations)
        writers["report.html"] = lambda out: _write(out, page)
    return writers


def _write(stream: TextIO, text: str) -> None:
    stream.write(text)


def _write_json(stream: TextIO, value: object) -> None:
    stream.write(json.dumps(value, indent=2, allow_nan=False) + "\n")
