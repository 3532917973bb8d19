"""1,000 cases in each file of each tool, some repeated and some broken: all are accounted for."""

import gzip
import io
import json
import zipfile
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
    CaseForm.INSPECT: lambda q, a: {"epoch": 1, "input": q, "target": a},
    CaseForm.HUGGING_FACE: lambda q, a: {"q": q, "a": a},
    CaseForm.PROMPTFOO: lambda q, a: {
        "vars": {"q": q} if q else {},
        "assert": [{"type": "equals", "value": a}],
    },
    CaseForm.OPENTELEMETRY: lambda q, a: {
        "name": "chat m",
        "attributes": {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([{"role": "user", "content": q}] if q else []),
        },
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


def dataset(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "saved"
    path.mkdir()
    pl.DataFrame(rows).write_ipc_stream(path / "data-00000-of-00001.arrow")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
    (path / "state.json").write_text(json.dumps(state), encoding="utf-8")
    return path


def log(folder: Path, rows: Sequence[Row]) -> Path:
    path, data = folder / "run.eval", io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("header.json", "{}")
        for number, row in enumerate(rows):
            made.writestr(f"samples/{number:04d}_epoch_1.json", json.dumps(row))
    path.write_bytes(data.getvalue())
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
        (CaseForm.INSPECT, log),
        *((CaseForm.HUGGING_FACE, write) for write in (dataset, parquet)),
        (CaseForm.PROMPTFOO, configuration),
        (CaseForm.OPENTELEMETRY, jsonl),
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
    names = FieldNames(("q",), "a") if form is CaseForm.HUGGING_FACE else FieldNames()
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
    if form is not CaseForm.OPENTELEMETRY:
        assert [one["expected"] for one in written] == [f"answer {n}" for n in range(n_whole)]
