"""Test cases and traces of other tools: what is carried, what is left out and why."""

import gzip
import json
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from convergence.__main__ import run
from tasks.inputs.case_files import Reporter, read_cases
from tasks.inputs.foreign_cases.case_forms import FieldNames, ForeignCase
from tasks.inputs.foreign_cases.case_import import (
    SAMPLED_TRACES,
    CaseForm,
    CaseImport,
    guess_form,
    import_cases,
)
from tasks.inputs.foreign_cases.case_sample import MAX_STRATA, CaseSample, allocate

KEY = "sk-" + "Zx81Qw" * 7
"""Of the form of a key."""


def written(path: Path, *rows: Any) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def imported(
    source: Path, form: CaseForm, **named: Any
) -> tuple[CaseImport, list[dict[str, Any]]]:
    output = source.parent / "out.jsonl"
    found = import_cases(source, output, form, **named)
    return found, [json.loads(line) for line in output.read_text("utf-8").splitlines()]


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def span(number: int, **attributes: Any) -> dict[str, Any]:
    """Return a span of a chat as the convention has it, with texts as JSON."""
    told = [{"role": "user", "parts": [{"type": "text", "content": f"question {number}"}]}]
    return {
        "name": "chat m",
        "attributes": {
            "gen_ai.operation.name": "chat", "gen_ai.input.messages": json.dumps(told), **attributes,
        },
    }  # fmt: skip


def otlp(*spans: dict[str, Any], service: str = "shop") -> dict[str, Any]:
    """Return a line of the Collector's file exporter."""

    def value(one: Any) -> dict[str, Any]:
        if isinstance(one, list):
            return {"arrayValue": {"values": [value(part) for part in one]}}
        if isinstance(one, dict):
            return {"kvlistValue": {"values": pairs(one)}}
        return {"intValue": str(one)} if isinstance(one, int) else {"stringValue": one}

    def pairs(attributes: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": key, "value": value(one)} for key, one in attributes.items()]

    made = [{**one, "attributes": pairs(one["attributes"])} for one in spans]
    resource = {"attributes": pairs({"service.name": service})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": made}]}]}


# -- each form


def test_a_thousand_cases_of_each_form_lose_nothing(tmp_path: Path):
    n = 1_000
    asked, right = [f"question {i}" for i in range(n)], [f"answer {i}" for i in range(n)]
    pairs = list(zip(asked, right, strict=True))
    sources: dict[CaseForm, list[Any]] = {
        CaseForm.LANGFUSE: [{"id": f"i{i}", "input": a, "expectedOutput": b} for i, (a, b) in enumerate(pairs)],
        CaseForm.LANGSMITH: [{"inputs": {"messages": [message("user", a)]}, "outputs": {"o": b}} for a, b in pairs],
        CaseForm.OPENAI_EVALS: [
            {"input": [message("system", "be brief"), message("user", a)], "ideal": b} for a, b in pairs
        ],
        CaseForm.INSPECT: [{"id": i, "epoch": 1, "input": a, "target": [b]} for i, (a, b) in enumerate(pairs)],
        CaseForm.HUGGING_FACE: [{"q": a, "a": b} for a, b in pairs],
        CaseForm.OPENTELEMETRY: [otlp(span(i)) for i in range(n)],
        CaseForm.PROMPTFOO: [
            {"vars": {"q": a}, "assert": [{"type": "equals", "value": b}]} for a, b in pairs
        ],
    }  # fmt: skip
    assert set(sources) == set(CaseForm)
    for form, rows in sources.items():
        names = FieldNames(("q",), "a") if form is CaseForm.HUGGING_FACE else FieldNames()
        found, cases = imported(written(tmp_path / "rows.jsonl", *rows), form, names=names, size=n)
        assert (found.n_read, found.n_written, found.skipped) == (n, n, {}), form
        inputs = [
            one["input"]["q"] if form is CaseForm.PROMPTFOO else one["input"] for one in cases
        ]
        assert inputs == asked, form
        if form is not CaseForm.OPENTELEMETRY:
            assert [one["expected"] for one in cases] == right, form
            assert found.n_expected == n
        loaded = read_cases(tmp_path / "out.jsonl", Reporter(None, "test_cases"))
        assert len(loaded.cases) == n
        assert not loaded.problems


@pytest.mark.parametrize(
    ("form", "row", "case"),
    [
        (
            CaseForm.LANGFUSE,
            {"id": "t", "input": {"messages": [message("user", "hi")]}, "output": "ho", "sessionId": "s", "tags": ["a"]},
            {"id": "t", "input": "hi", "group": "s", "tags": ["a"]},
        ),
        (
            CaseForm.LANGFUSE,
            {"input": {"q": 1, "k": 2}, "expectedOutput": {"label": "x"}},
            {"input": {"q": 1, "k": 2}, "expected": "x"},
        ),
        (
            CaseForm.LANGSMITH,
            {"run_type": "chain", "run_id": "r", "inputs": {"q": "hi"}, "outputs": {"o": "ho"}},
            {"id": "r", "input": {"q": "hi"}},
        ),
        (
            CaseForm.LANGSMITH,
            {"input_question": "hi", "input_k": "3", "output_answer": "ho"},
            {"input": {"question": "hi", "k": "3"}, "expected": "ho"},
        ),
        (
            CaseForm.OPENAI_EVALS,
            {"object": "eval.run.output_item", "datasource_item_id": 3, "datasource_item": {"q": "hi", "ideal": "ho"}},
            {"id": "3", "input": {"q": "hi"}, "expected": "ho"},
        ),
        (CaseForm.OPENAI_EVALS, {"item": {"input": "hi", "ground_truth": 4}}, {"input": "hi", "expected": 4}),
        (
            CaseForm.INSPECT,
            {"id": 7, "input": [message("user", "pick")], "choices": ["a", "b"], "target": "A"},
            {"id": "7", "input": {"input": "pick", "choices": ["a", "b"]}, "expected": "A"},
        ),
        (CaseForm.INSPECT, {"id": "x", "input": "free", "target": ""}, {"id": "x", "input": "free"}),
        (CaseForm.HUGGING_FACE, {"id": 4, "text": "hi"}, {"id": "4", "input": {"id": 4, "text": "hi"}}),
    ],
)  # fmt: skip
def test_a_row_of_a_tool_is_this_case(
    form: CaseForm, row: dict[str, Any], case: dict[str, Any], tmp_path: Path
):
    _, cases = imported(written(tmp_path / "rows.jsonl", row), form)
    assert cases == [case]


@pytest.mark.parametrize(
    ("form", "row", "reason"),
    [
        (CaseForm.LANGFUSE, {"input": "a", "status": "ARCHIVED"}, "archived"),
        (CaseForm.LANGFUSE, {"input": None}, "nothing is asked"),
        (CaseForm.LANGFUSE, {"input": " \n"}, "nothing is asked"),
        (CaseForm.LANGFUSE, [1], "a row is no object"),
        (CaseForm.LANGSMITH, {"run_type": "llm", "parent_run_id": "p", "inputs": {"q": 1}}, "a part of another run"),
        (CaseForm.LANGSMITH, {"inputs": {"messages": [{"content": "x"}]}}, "a message has no role"),
        (CaseForm.INSPECT, {"epoch": 2, "input": "a"}, "another epoch of a sample"),
        (
            CaseForm.OPENAI_EVALS,
            {"input": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "a message holds more than text",
        ),
        (CaseForm.OPENTELEMETRY, {"resourceSpans": 3}, "a line is not of OpenTelemetry's form"),
        (CaseForm.OPENTELEMETRY, span(1, **{"gen_ai.operation.name": "embeddings"}),
         "the operation embeddings asks no model for an answer"),
        (CaseForm.OPENTELEMETRY, {"attributes": {"http.method": "GET"}}, "a span that is no model call"),
        (CaseForm.OPENTELEMETRY, {"attributes": {"gen_ai.request.model": "m"}},
         "a call without its messages: recording them is off by default"),
        (CaseForm.OPENTELEMETRY, span(1, **{"gen_ai.input.messages": '[{"role": "user", "par'}),
         "messages that were cut off when they were recorded"),
        (CaseForm.OPENTELEMETRY, span(1, **{"gen_ai.input.messages": json.dumps([
            message("user", "a"), {"role": "tool", "content": "4"}])}),
         "the call answers a tool's result, not a person"),
    ],
)  # fmt: skip
def test_what_is_left_out_is_counted_with_its_reason(
    form: CaseForm, row: Any, reason: str, tmp_path: Path
):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(row) + "\n{broken\n")
    found, cases = imported(source, form)
    assert not cases
    assert found.skipped[reason] == 1
    assert sum(found.skipped.values()) == found.n_read == 2


def test_a_promptfoo_configuration_is_carried_with_all_it_refers_to(tmp_path: Path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more/a.csv").write_text(
        "q,__expected,__description,__metadata:kind\n"
        "one,1,first,easy\ntwo,contains: 2,,\nthree,javascript: output > 2,,\nfour,is-json,,\nfive,a: b,,\n"
    )
    (tmp_path / "long.txt").write_text("a long text")
    (tmp_path / "promptfooconfig.yaml").write_text(
        """
defaultTest: {vars: {tone: kind}, assert: [{type: latency, threshold: 5}]}
tests:
  - file://more/*.csv
  - {vars: {q: file://long.txt}, assert: [{type: icontains, value: "{{ tone }}"}, {type: equals, value: x}]}
  - {vars: {q: file://../../etc/passwd}}
  - {vars: {q: file://make.js}}
  - tests.py
  - huggingface://datasets/x
scenarios:
  - config: [{vars: {lang: de}}, {vars: {lang: fr}}]
    tests: [{vars: {q: hello}}]
"""
    )
    source = tmp_path / "promptfooconfig.yaml"
    assert guess_form(source) is CaseForm.PROMPTFOO
    found, cases = imported(source, CaseForm.PROMPTFOO)
    expected = {case["input"]["q"]: case.get("expected") for case in cases[:6]}
    assert expected == {
        "one": "1", "two": "2", "three": None, "four": None, "five": "a: b", "a long text": "kind",
    }  # fmt: skip
    assert [case["input"] for case in cases[6:]] == [
        {"tone": "kind", "lang": "de", "q": "hello"},
        {"tone": "kind", "lang": "fr", "q": "hello"},
    ]
    assert cases[0]["description"] == "first"
    assert found.skipped == {
        "a variable is a file outside of the configuration's folder": 1,
        "a variable is made by code, which is not run": 1,
        "tests in tests.py, which is no file here": 1,
        "tests in huggingface://datasets/x, which is no file here": 1,
    }
    assert found.not_carried["assertion latency"] == 8
    assert found.not_carried["a second assertion (equals beside icontains)"] == 1
    assert found.metrics == {"exact_match": 2, "contains": 2}
    assert "passwd" not in (tmp_path / "out.jsonl").read_text()


def test_lists_of_a_promptfoo_test_stand_for_all_combinations_unless_there_are_too_many(
    tmp_path: Path,
):
    tests = [
        {"vars": {"a": [1, 2], "b": ["x", "y", "z"]}},
        {"vars": {"a": [*range(200)], "b": [*range(200)]}},
    ]
    found, cases = imported(written(tmp_path / "promptfoo.jsonl", *tests), CaseForm.PROMPTFOO)
    assert len({json.dumps(case["input"]) for case in cases}) == 6
    assert found.skipped == {"a test of more than 10,000 combinations of its lists": 1}


# -- traces


@pytest.mark.parametrize(
    "made",
    [
        {"attributes": {"gen_ai.prompt.0.role": "system", "gen_ai.prompt.0.content": "be kind",
                        "gen_ai.prompt.1.role": "user", "gen_ai.prompt.1.content": "hello",
                        "gen_ai.completion.0.content": "hi"}},
        {"attributes": {"llm.input_messages.0.message.role": "user",
                        "llm.input_messages.0.message.content": "hello",
                        "llm.output_messages.0.message.content": "hi"}},
        {"attributes": {}, "events": [
            {"name": "gen_ai.content.prompt", "attributes": {"gen_ai.prompt": json.dumps([message("user", "hello")])}},
            {"name": "gen_ai.content.completion", "attributes": {"gen_ai.completion": json.dumps([message("assistant", "hi")])}},
        ]},
        {"attributes": {"gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": "hello"}]}],
                        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}]}},
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_otlp", [False, True])
def test_messages_of_a_span_are_found_in_every_form_in_use(
    made: dict[str, Any], is_otlp: bool, tmp_path: Path
):
    row = otlp(made) if is_otlp else made
    names = FieldNames(answers_as_expected=True)
    _, cases = imported(written(tmp_path / "s.jsonl", row), CaseForm.OPENTELEMETRY, names=names)
    assert cases == [{"input": "hello", "expected": "hi"}]


def test_traces_are_sampled_alike_of_each_agent_whatever_their_order(tmp_path: Path):
    rows = [
        otlp(span(i, **{"gen_ai.agent.name": "rare" if i % 100 == 0 else "often",
                        "gen_ai.conversation.id": f"c{i // 2}"}))
        for i in range(3_000)
    ]  # fmt: skip
    first, cases = imported(written(tmp_path / "a.jsonl", *rows), CaseForm.OPENTELEMETRY, size=40)
    assert first.strata == {"often": (20, 2_970), "rare": (20, 30)}
    assert (first.n_written, first.n_distinct) == (40, 3_000)
    assert all(case["group"].startswith("c") for case in cases)
    zipped = tmp_path / "b.jsonl.gz"
    zipped.write_bytes(
        gzip.compress("".join(json.dumps(row) + "\n" for row in rows[::-1]).encode())
    )
    again, others = imported(zipped, CaseForm.OPENTELEMETRY, size=40)
    assert again.strata == first.strata
    assert {one["input"] for one in others} == {one["input"] for one in cases}
    _, seeded = imported(tmp_path / "a.jsonl", CaseForm.OPENTELEMETRY, size=40, seed=1)
    assert {one["input"] for one in seeded} != {one["input"] for one in cases}
    by_service, _ = imported(tmp_path / "a.jsonl", CaseForm.OPENTELEMETRY, by="service.name")
    assert by_service.strata == {"shop": (SAMPLED_TRACES, 3_000)}


def test_agents_without_a_name_are_told_apart_by_their_instructions(tmp_path: Path):
    rows = [
        span(i, **{"gen_ai.system_instructions": [{"type": "text", "content": f"role {i % 2}"}]})
        for i in range(20)
    ]
    found, _ = imported(written(tmp_path / "s.jsonl", *rows, span(99)), CaseForm.OPENTELEMETRY)
    assert sorted(n for _, n in found.strata.values()) == [1, 10, 10]
    assert "no instructions" in found.strata


def test_repeated_questions_are_one_case_and_secrets_are_masked(tmp_path: Path):
    rows = [
        {"input": f"my key is {KEY}, ok?"},
        {"input": "a  b"},
        {"input": "a b\n"},
        {"input": {KEY: "x"}},
    ]
    found, cases = imported(written(tmp_path / "r.jsonl", *rows), CaseForm.LANGFUSE)
    assert (found.n_repeated, found.n_redacted, len(cases)) == (1, 2, 3)
    assert KEY not in (tmp_path / "out.jsonl").read_text()
    assert "ok?" in cases[0]["input"]


def test_ids_that_two_rows_share_are_left_to_their_content(tmp_path: Path):
    rows = [{"id": "a", "input": "1"}, {"id": "a", "input": "2"}, {"id": "b", "input": "3"}]
    _, cases = imported(written(tmp_path / "r.jsonl", *rows), CaseForm.LANGFUSE)
    assert [case.get("id") for case in cases] == [None, None, "b"]


# -- files


def test_files_of_lists_tables_and_parquet_are_read(tmp_path: Path):
    import polars as pl

    (tmp_path / "a.json").write_text(json.dumps({"data": [{"input": "x"}], "meta": {}}))
    (tmp_path / "b.csv").write_text('id,input,expectedOutput\n1,"{""q"": 2}",y\n2,only two\n')
    pl.DataFrame({"input": ["x"], "expectedOutput": ["y"]}).write_parquet(tmp_path / "c.parquet")
    (tmp_path / "d.json").write_text(
        json.dumps({"input": "x"}) + "\n" + json.dumps({"input": "y"}) + "\n"
    )
    assert imported(tmp_path / "a.json", CaseForm.LANGFUSE)[1] == [{"input": "x"}]
    found, cases = imported(tmp_path / "b.csv", CaseForm.LANGFUSE)
    assert cases == [{"id": "1", "input": {"q": 2}, "expected": "y"}]
    assert found.skipped == {"a line has another number of columns than the first": 1}
    assert imported(tmp_path / "c.parquet", CaseForm.LANGFUSE)[1] == [
        {"input": "x", "expected": "y"}
    ]
    assert len(imported(tmp_path / "d.json", CaseForm.LANGFUSE)[1]) == 2


def test_a_log_of_inspect_is_read_as_it_is_compressed(tmp_path: Path):
    sample = json.dumps({"id": 1, "epoch": 1, "input": "q", "target": "t", "scores": float("nan")})
    with zipfile.ZipFile(tmp_path / "plain.eval", "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("header.json", "{}")
        log.writestr("samples/1_epoch_1.json", sample)
        log.writestr("samples/2_epoch_1.json", "{broken")
        log.writestr("samples/3_epoch_1.json", json.dumps({"input": {"n": 2**70}}))
    found, cases = imported(tmp_path / "plain.eval", CaseForm.INSPECT)
    assert cases == [{"id": "1", "input": "q", "expected": "t"}]
    assert found.skipped == {
        "a sample is no JSON": 1,
        "a value that JSON cannot carry, such as a number of more than 64 bits": 1,
    }
    zstandard = pytest.importorskip("zstandard")
    squeezed = zstandard.ZstdCompressor().compress(sample.encode())
    # A zip file whose member is said to be compressed by method 93, as Inspect writes it.
    with zipfile.ZipFile(tmp_path / "z.eval", "w") as log:
        log.writestr("samples/1_epoch_1.json", squeezed)
        (info,) = log.infolist()
        info.file_size, info.CRC = len(sample), zlib.crc32(sample.encode())
        info.compress_type = 93
    assert imported(tmp_path / "z.eval", CaseForm.INSPECT)[1] == cases


def test_a_dataset_on_disk_is_read_by_split(tmp_path: Path):
    import polars as pl

    for name, n in (("train", 3), ("test", 2)):
        (tmp_path / "d" / name).mkdir(parents=True)
        frame = pl.DataFrame({"question": [f"{name} {i}" for i in range(n)], "answer": ["a"] * n})
        frame.write_ipc_stream(tmp_path / "d" / name / "data-00000-of-00001.arrow")
        state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}
        (tmp_path / "d" / name / "state.json").write_text(json.dumps(state))
    (tmp_path / "d/dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    names = FieldNames(("question",), "answer")
    _, cases = imported(tmp_path / "d", CaseForm.HUGGING_FACE, names=names, split="test")
    assert cases == [{"input": f"test {i}", "expected": "a"} for i in range(2)]
    with pytest.raises(ValueError, match=r"several splits; name one by --split: train, test"):
        imported(tmp_path / "d", CaseForm.HUGGING_FACE)
    with pytest.raises(ValueError, match="has no split 'dev'"):
        imported(tmp_path / "d", CaseForm.HUGGING_FACE, split="dev")
    wrong, _ = imported(
        tmp_path / "d", CaseForm.HUGGING_FACE, names=FieldNames(("q",)), split="test"
    )
    assert wrong.skipped == {"no field q": 2}


def test_the_command_says_what_is_wrong_and_never_overwrites_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "r.jsonl", {"input": "a"})
    assert run(["import", "cases", "r.jsonl"]) == 2
    assert "promptfoo, inspect, langfuse" in capsys.readouterr().err
    assert run(["import", "cases", "r.jsonl", "-f", "langfues"]) == 2
    assert run(["import", "cases", "none.jsonl", "-f", "langfuse"]) == 2
    assert not Path("cases.jsonl").exists()
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["n_written"], told["file"]) == (1, "cases.jsonl")
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse"]) == 2
    assert run(["import", "cases", "r.jsonl", "-f", "langfuse", "--overwrite"]) == 0
    assert (
        run(["import", "cases", "r.jsonl", "-f", "openai-evals", "-o", "x.jsonl", "--input", "b"])
        == 100
    )
    assert "no field b" in capsys.readouterr().err


# -- the sample


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 50), min_size=1, max_size=8), st.data())
def test_an_allocation_is_level_and_whole(counts: dict[str, int], data: st.DataObject):
    size = data.draw(st.integers(0, sum(counts.values())))
    taken = allocate(counts, size)
    assert sum(taken.values()) == size
    assert all(0 <= taken[name] <= counts[name] for name in counts)
    cut = [taken[name] for name in counts if taken[name] < counts[name]]
    assert max(taken.values()) - min(cut, default=max(taken.values())) <= 1


@pytest.mark.parametrize("n_strata", [1, 7, MAX_STRATA + 50])
def test_a_sample_in_one_pass_is_the_one_of_all_cases_at_once(n_strata: int):
    """What is dropped on the way is nothing that the end would keep."""
    small, whole = CaseSample(20), CaseSample(None)
    for number in range(6_000):
        stratum = f"s{(number * number) % n_strata}"
        for sample in (small, whole):
            sample.add(ForeignCase(input=number), stratum)
    assert sum(map(len, small._kept.values())) <= 4 * 20 + MAX_STRATA
    expected = allocate(whole.counts, 20)
    taken = Counter(stratum for stratum, _ in small.cases())
    assert taken == {name: n for name, n in expected.items() if n}
    best = {
        stratum: {case.input for _, _, case in sorted(kept, reverse=True)[: expected[stratum]]}
        for stratum, kept in whole._kept.items()
    }
    assert all(case.input in best[stratum] for stratum, case in small.cases())
