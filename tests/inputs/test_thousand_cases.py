"""1,000 cases in each file of each tool, some repeated and some broken: all are accounted for."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tasks.inputs.case_files import Reporter, read_cases
from tasks.inputs.foreign_cases.case_forms import FieldNames
from tasks.inputs.foreign_cases.case_import import CaseForm, import_cases

N, N_REPEATED, N_BROKEN = 1_000, 30, 20
Row = Mapping[str, Any]

ROWS: Mapping[CaseForm, Callable[[str, str], Row]] = {
    CaseForm.LANGFUSE: lambda q, a: {"input": q, "expectedOutput": a},
    CaseForm.LANGSMITH: lambda q, a: {"inputs": {"q": q} if q else {}, "outputs": {"o": a}},
    CaseForm.OPENAI_EVALS: lambda q, a: {"input": q, "ideal": a},
    CaseForm.TABLE: lambda q, a: {"q": q, "a": a},
    CaseForm.PROMPTFOO: lambda q, a: {
        "vars": {"q": q} if q else {},
        "assert": [{"type": "equals", "value": a}],
    },
}
"""Form → a row of it that asks a question; an empty one asks nothing."""


def jsonl(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def squeezed(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(folder, rows).read_bytes()))
    return path


def listed(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "rows.json"
    path.write_text(json.dumps({"data": rows}), encoding="utf-8")
    return path


def csv(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "rows.csv"
    pl.DataFrame(rows).write_csv(path)
    return path


def parquet(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "rows.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def configuration(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "promptfooconfig.json"
    path.write_text(json.dumps({"tests": list(rows)}), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("form", "write"),
    [
        *((CaseForm.LANGFUSE, write) for write in (squeezed, listed, csv, parquet)),
        (CaseForm.LANGSMITH, jsonl),
        (CaseForm.OPENAI_EVALS, jsonl),
        (CaseForm.TABLE, parquet),
        (CaseForm.PROMPTFOO, configuration),
    ],
)
def test_a_thousand_cases_are_written_repeated_or_left_out_for_a_reason(
    form: CaseForm, write: Callable[[Path, Sequence[Row]], Path], tmp_path: Path
):
    n_whole = N - N_REPEATED - N_BROKEN
    asked = [f'question {n}: ü, "x"; 🦄\nanother line' for n in range(n_whole)]
    whole = [ROWS[form](one, f"answer {n}") for n, one in enumerate(asked)]
    broken = [ROWS[form]("", "nothing was asked")] * N_BROKEN
    source = write(tmp_path, [*whole, *whole[:N_REPEATED], *broken])
    names = FieldNames(("q",), "a") if form is CaseForm.TABLE else FieldNames()
    output = tmp_path / "out.jsonl"
    found = import_cases(source, output, form, names=names, size=N)
    told = sum(found.skipped.values())
    assert (found.n_read, found.n_written, found.n_repeated, told) == (
        N,
        n_whole,
        N_REPEATED,
        N_BROKEN,
    ), found.skipped
    assert all(reason.strip() for reason in found.skipped)
    loaded = read_cases(output, Reporter(None, "test_cases"))
    assert not loaded.problems
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    inputs = [one["input"] for one in written]
    assert [one["q"] if isinstance(one, dict) else one for one in inputs] == asked
    assert [one["expected"] for one in written] == [f"answer {n}" for n in range(n_whole)]
