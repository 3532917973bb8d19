"""Loading test cases: what is read, and what every wrong file is told."""

import json
import re
from datetime import date
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
import yaml

from convergence_core.errors import ConfigurationError
from tasks.inputs.cases import hash_of, split_holdout
from tasks.inputs.loader import load
from tests.support.configurations import loaded, mapping

CASES: list[dict[str, Any]] = [
    {
        "id": "a",
        "input": {"q": "one"},
        "expected": "1",
        "weight": 2.0,
        "tags": ["x", "y"],
        "group": "numbers",
    },
    {"id": "b", "input": {"q": "two"}, "expected": "2", "description": "the second"},
]


def load_cases(tmp_path, name, content, **sections) -> Any:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content)
    return loaded(tmp_path, evaluation__test_cases={"path": name}, **sections)


def problems_of(tmp_path, name, content, **sections) -> Any:
    with pytest.raises(ConfigurationError) as caught:
        load_cases(tmp_path, name, content, **sections)
    return caught.value.problems


def problem_of(tmp_path, name, content, **sections) -> Any:
    (problem,) = problems_of(tmp_path, name, content, **sections)
    assert problem.file == str(tmp_path / name)
    assert problem.fix
    return problem


# -- the five formats


def as_jsonl(cases) -> Any:
    return "".join(json.dumps(case) + "\n" for case in cases)


CSV = (
    "id,input.q,expected,weight,tags,group,description\n"
    "a,one,1,2,x;y,numbers,\nb,two,2,,,,the second\n"
)
YAML = """
test_cases:
  - {id: a, input: {q: one}, expected: "1", weight: 2.0, tags: [x, y],
     group: numbers}
  - {id: b, input: {q: two}, expected: "2", description: the second}
"""


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.json", json.dumps(CASES)),
        ("c.json", json.dumps({"test_cases": CASES})),
        ("c.json", "\ufeff" + json.dumps(CASES, indent=2)),
        ("c.jsonl", as_jsonl(CASES)),
        ("c.jsonl", "\n" + as_jsonl(CASES) + "\n\n"),
        ("c.yaml", YAML),
        ("c.yml", YAML.replace("test_cases:", "cases:")),
        ("c.csv", CSV),
        ("c.csv", CSV.replace("\n", "\r\n")),
        ("c.csv", CSV.replace("\n", "\r")),
        ("c.csv", "\ufeff" + CSV.replace(",", "|").replace(";", ",")),
        ("c.csv", CSV.replace(";", " ").replace(",", ";").replace("x y", '"x;y"')),
        ("c.csv", "sep=,\r\n" + CSV.replace("\n", "\r\n")),
        ("c.csv", '"sep=\t"\n' + CSV.replace(",", "\t")),
        ("c.csv", CSV.replace(",", "\t")),
        ("c.tsv", CSV.replace(",", "\t")),
        ("c.csv", CSV.replace(",", ", ").replace("one", '"one"')),
    ],
)
def test_every_text_format_gives_the_same_cases(tmp_path, name, content):
    made = load_cases(tmp_path, name, content)
    first, second = made.cases
    assert (first.case_id, first.input, first.expected) == ("a", {"q": "one"}, "1")
    assert (first.weight, first.tags) == (2.0, ("x", "y"))
    assert (first.group, second.group) == ("numbers", None)
    assert (second.weight, second.tags, second.description) == (1.0, (), "the second")
    assert made.cases_sha256 == hash_of(loaded(evaluation__test_cases={"inline": CASES}).cases)


def test_parquet_gives_the_same_cases(tmp_path):
    pl.DataFrame(CASES).write_parquet(tmp_path / "c.parquet")
    made = loaded(tmp_path, evaluation__test_cases={"path": "c.parquet"})
    assert made.cases_sha256 == hash_of(loaded(evaluation__test_cases={"inline": CASES}).cases)


@pytest.mark.parametrize(
    ("cells", "dtype", "value", "n_warnings"),
    [
        ([1.1], pl.Float32, 1.1, 0),
        ([2**63 - 1], pl.Int64, 2**63 - 1, 0),
        ([Decimal("29.90")], pl.Decimal(10, 2), 29.9, 1),
        ([Decimal("29.95")], pl.Decimal(10, 2), 29.95, 0),
        ([Decimal(12345678901234567890)], pl.Decimal(20, 0), 12345678901234567890, 0),
        ([date(2024, 1, 2)], pl.Date, "2024-01-02", 0),
        ([[1.1, None]], pl.List(pl.Float32), [1.1, None], 0),
        ([[1.1, 2.2]], pl.Array(pl.Float32, 2), [1.1, 2.2], 0),
        (
            [{"a": [{"b": 3.3}], "c": Decimal("29.90")}],
            pl.Struct({"a": pl.List(pl.Struct({"b": pl.Float32})), "c": pl.Decimal(10, 2)}),
            {"a": [{"b": 3.3}], "c": 29.9},
            1,
        ),
    ],
)
def test_typed_cells_of_parquet_keep_what_is_written(tmp_path, cells, dtype, value, n_warnings):
    frame = pl.DataFrame({"input": ["x"], "expected": pl.Series(cells, dtype=dtype)})
    frame.write_parquet(tmp_path / "c.parquet")
    made = loaded(tmp_path, evaluation__test_cases={"path": "c.parquet"})
    assert made.cases[0].expected == value
    assert len(made.warnings) == n_warnings


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (("Input", "Expected"), "Did you mean `input` by `Input`?"),
        (("inputs", "expected"), "Did you mean `input` by `inputs`?"),
        (("question", "Expected"), "Did you mean `expected` by `Expected`?"),
        (("expected",), "must have a column `input`"),
        (("input", "expected", "expected.a"), "must not have both a column `expected`"),
    ],
)
def test_tables_check_their_columns_alike(tmp_path, form, columns, said):
    """A misspelt column would put the expected answer into the input."""
    frame = pl.DataFrame({name: ["a", "b"] for name in columns})
    getattr(frame, f"write_{form}")(tmp_path / f"c.{form}")
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        loaded(tmp_path, evaluation__test_cases={"path": f"c.{form}"})


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("name", ["input", "input.q"])
def test_further_columns_of_a_table_are_fields_beside_its_input(tmp_path, form, name):
    frame = pl.DataFrame({name: ["a"], "lang": ["de"], "_row": ["1"], "expected": ["x"]})
    getattr(frame, f"write_{form}")(tmp_path / f"c.{form}")
    (case,) = loaded(tmp_path, evaluation__test_cases={"path": f"c.{form}"}).cases
    assert case.input == {name.rpartition(".")[2]: "a", "lang": "de"}


@pytest.mark.parametrize("whole", [{"q": "a"}, [{"role": "user", "content": "a"}]])
def test_a_nested_input_of_parquet_is_the_whole_input(tmp_path, whole):
    frame = pl.DataFrame({"input": [whole], "source": ["web"], "expected": ["x"]})
    frame.write_parquet(tmp_path / "c.parquet")
    (case,) = loaded(tmp_path, evaluation__test_cases={"path": "c.parquet"}).cases
    assert case.input == whole


def test_a_cell_of_parquet_that_is_no_number_is_named_with_its_column(tmp_path):
    columns = {"input": ["x", "y"], "expected": [1.0, float("nan")], "_ignored": [b"", b""]}
    frame = pl.DataFrame(columns)
    frame.write_parquet(tmp_path / "c.parquet")
    with pytest.raises(ConfigurationError, match="in row 2 `expected` is nan, not a finite"):
        loaded(tmp_path, evaluation__test_cases={"path": "c.parquet"})


def test_an_id_that_is_no_text_as_written_is_warned_of(tmp_path):
    text = "- {id: 007, input: x, expected: a, group: 01}\n- {id: 8, input: y, expected: b}"
    first, second = load_cases(tmp_path, "c.yaml", text).warnings
    assert (first.value, second.value) == ("007", "01")


def test_csv_cells_of_json_objects_and_lists_of_texts_or_objects_are_decoded(tmp_path):
    text = (
        "input.text,input.deep.list,expected\n"
        'hello,"[{""role"": ""user""}]","{""a"": null}"\n'
        'b,"[""x"", ""y""]","[""4"", ""four""]"\n'
        'c,"[1, 2]","{""a"": 7e12345}"\n'
    )
    first, second, third = load_cases(tmp_path, "c.csv", text).cases
    assert first.input == {"text": "hello", "deep": {"list": [{"role": "user"}]}}
    assert first.expected == {"a": None}
    assert second.input == {"text": "b", "deep": {"list": ["x", "y"]}}
    assert second.expected == ["4", "four"]
    assert third.input == {"text": "c", "deep": {"list": "[1, 2]"}}
    assert third.expected == '{"a": 7e12345}'


# -- warnings


@pytest.mark.parametrize(
    ("name", "content", "line", "written"),
    [
        ("c.yaml", "- {input: x, expected: 3.10}", 1, "3.10"),
        ("c.yaml", "- input: x\n  expected: 0123", 2, "0123"),
        ("c.yaml", "- input: x\n  expected: 0x1F", 2, "0x1F"),
        ("c.yaml", "test_cases:\n- input: x\n  expected: 1e3", 3, "1e3"),
        ("c.yaml", "- {input: x, expected: [True, 'x']}", 1, "True"),
        ("c.jsonl", '{"input": "x", "expected": 3.10}', 1, "3.10"),
        ("c.json", '[{"input": "x", "expected": 1e3}]', 1, "1e3"),
        ("c.csv", 'q,expected\nx,"{""v"": 3.10}"', 2, "3.10"),
    ],
)
def test_a_value_that_is_no_text_as_written_is_warned_of_where_texts_are_compared(
    tmp_path, name: str, content: str, line: int, written: str
):
    (warning,) = load_cases(tmp_path, name, content).warnings
    assert (warning.line, warning.value) == (line, written)
    assert f'Write "{written}"' in warning.fix
    numeric = {"right": {"type": "numeric", "weight": 1}}
    if written not in ("True", "0x1F") and name != "c.csv":
        assert not load_cases(tmp_path, name, content, evaluation__metrics=numeric).warnings


def test_quotes_within_a_cell_that_has_none_around_it_are_its_text(tmp_path):
    (case,) = load_cases(tmp_path, "c.csv", 'q,expected\nx, "Stop" he said').cases
    assert case.expected == ' "Stop" he said'


@pytest.mark.parametrize("written", ["3.10", "007"])
@pytest.mark.parametrize(
    ("form", "key"),
    [("[{}, 4]", "k[0]"), ("{{type: categorical, choices: [{}, 4]}}", "k.choices[0]")],
)
def test_a_choice_that_looks_like_a_name_is_warned_of(tmp_path, written, form, key):
    text = yaml.safe_dump(mapping(search_space__parameters={"k": "CHOICES"}))
    (tmp_path / "o.yaml").write_text(text.replace("CHOICES", form.format(written)))
    (warning,) = load(tmp_path / "o.yaml").warnings
    assert (warning.key, warning.value) == (f"search_space.parameters.{key}", written)


@pytest.mark.parametrize(
    ("cases", "rule"),
    [
        ([{"input": {"q": "a", "label": x}, "expected": x} for x in "abc"], "its field `label` is that"),
        ([{"input": f"{x} or blue?", "expected": [x]} for x in ("red", "green")], "within its text in 2 of 2"),
        ([{"input": {"q": x, "k": "1"}, "expected": "1"} for x in ("red", "reddish", "blue")], "`k`"),
        ([{"input": "reddish", "expected": "red"}, {"input": "b", "expected": "red"}], None),
        ([{"input": {"choices": ["a", "b"]}, "expected": x} for x in "ab"], None),
        ([{"input": x, "expected": x} for x in ("red",)], None),
    ],
)  # fmt: skip
def test_an_input_that_holds_its_expected_answer_is_warned_of(tmp_path, cases, rule: str | None):
    warnings = load_cases(tmp_path, "c.json", json.dumps(cases)).warnings
    assert len(warnings) == (rule is not None)
    assert all(str(rule) in str(one) for one in warnings)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("input,expected\nhello,1\n", "hello"),
        ("input,expected,category\nhello,1,easy\n", {"input": "hello", "category": "easy"}),
        ("question,language,expected\nhello,en,1\n", {"question": "hello", "language": "en"}),
        ("input.text,language,expected\nhello,en,1\n", {"text": "hello", "language": "en"}),
        ("input,expected,_note\nhello,1,easy\n", "hello"),
        (",input,expected\n0,hello,1\n", "hello"),
        ("question,expected,,\nhello,1,,\n", {"question": "hello"}),
        ("input,input.text,expected\nhello,en,1\n", {"input": "hello", "text": "en"}),
    ],
)
def test_further_columns_are_fields_of_the_input(tmp_path, text: str, wanted: object):
    assert load_cases(tmp_path, "c.csv", text).cases[0].input == wanted


def test_ids_are_derived_from_the_content_when_there_are_none(tmp_path):
    cases = [{"input": "x", "expected": "1"}, {"input": "y", "expected": "1"}]
    one = load_cases(tmp_path, "c.json", json.dumps(cases)).cases
    two = load_cases(tmp_path, "d.json", json.dumps(cases[::-1])).cases
    assert {case.case_id for case in one} == {case.case_id for case in two}
    assert len({case.case_id for case in one}) == 2


def test_the_hash_of_the_cases_does_not_depend_on_their_order_but_on_all_else(tmp_path):
    one = load_cases(tmp_path, "c.json", json.dumps(CASES))
    two = load_cases(tmp_path, "d.json", json.dumps(CASES[::-1]))
    other = load_cases(tmp_path, "e.json", json.dumps([{**CASES[0], "weight": 3}, CASES[1]]))
    assert one.cases_sha256 == two.cases_sha256 != other.cases_sha256


# -- wrong files


@pytest.mark.parametrize("name", ["c.json", "c.jsonl", "c.yaml", "c.csv"])
def test_a_file_that_is_not_utf_8_is_told_with_its_line(tmp_path, name):
    problem = problem_of(tmp_path, name, b'[\n{"input": "caf\xe9"}]')
    assert "UTF-8" in str(problem)
    assert problem.line == 2


def test_every_broken_line_of_jsonl_is_told(tmp_path):
    text = '{"input": "x", "expected": 1}\n{"input": \n{"input": "y", "expected": NaN}\n'
    problems = problems_of(tmp_path, "c.jsonl", text)
    assert [problem.line for problem in problems] == [2, 3]
    assert "NaN" in str(problems[1])


def test_a_csv_line_with_too_many_cells_is_told(tmp_path):
    problem = problem_of(tmp_path, "c.csv", 'input,expected\n"a\nb",1\nx,1,2\n')
    assert problem.line == 4
    assert "3 cells" in str(problem)


# -- wrong cases


def wrong_case(tmp_path, case, **sections) -> Any:
    text = '[\n {"id": "ok", "input": "x", "expected": "1"},\n ' + json.dumps(case) + "\n]"
    problem = problem_of(tmp_path, "c.json", text, **sections)
    assert (problem.line, problem.column) == (3, 2)
    return problem


def test_a_duplicate_id_names_the_other_line(tmp_path):
    problem = wrong_case(tmp_path, {"id": "ok", "input": "y", "expected": "1"})
    assert problem.key == "evaluation.test_cases[1].id"
    assert "line 2" in problem.rule


@pytest.mark.parametrize(
    "case", [{"id": "b", "expected": "1"}, {"id": "b", "input": None, "expected": "1"}]
)
def test_a_missing_input(tmp_path, case):
    assert wrong_case(tmp_path, case).key.endswith("[1].input")


@pytest.mark.parametrize("weight", [0, -1, "heavy", True, [1]])
def test_a_weight_that_is_no_positive_number(tmp_path, weight):
    case = {"id": "b", "input": "y", "expected": "1", "weight": weight}
    assert wrong_case(tmp_path, case).key.endswith("[1].weight")


def test_expected_is_required_where_a_metric_needs_it(tmp_path):
    problem = wrong_case(tmp_path, {"id": "b", "input": "y"})
    assert "`exact_match`" in problem.rule
    free = {"success_rate": {"weight": 1}}
    load_cases(tmp_path, "c.json", '[{"input": "y"}]', evaluation__metrics=free)


def test_all_wrong_cases_are_told_at_once(tmp_path):
    text = as_jsonl(
        [{"input": "x"}, {"expected": "1"}, {"input": "x", "expected": "1", "weight": 0}]
    )
    problems = problems_of(tmp_path, "c.jsonl", text)
    assert [problem.line for problem in problems] == [1, 2, 3]


# -- the held-out share


def test_holdout_depends_on_ids_alone():
    made = loaded(evaluation__test_cases={"inline": _many(40), "holdout": 0.3})
    other = loaded(evaluation__test_cases={"inline": _many(40)[::-1], "holdout": 0.3})
    held = {case.case_id for case in made.holdout_cases}
    assert len(held) == 12
    assert held == {case.case_id for case in other.holdout_cases}
    assert held.isdisjoint(case.case_id for case in made.search_cases)
    assert len(made.search_cases) == 28


@pytest.mark.parametrize(
    ("n", "share", "n_held"), [(2, 0.01, 1), (2, 0.9, 1), (10, 0.9, 9), (3, 0.0, 0)]
)
def test_each_side_has_at_least_one_case(n, share, n_held):
    cases = loaded(evaluation__test_cases={"inline": _many(n)}).cases
    search, held = split_holdout(cases, share)
    assert (len(search), len(held)) == (n - n_held, n_held)


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_group_is_held_out_whole_or_not_at_all(share):
    inline = [{**case, "group": f"q{i // 10}"} for i, case in enumerate(_many(200))]
    made = loaded(evaluation__test_cases={"inline": inline, "holdout": share})
    held = {case.group for case in made.holdout_cases}
    assert held.isdisjoint({case.group for case in made.search_cases})
    assert len(made.holdout_cases) == 200 * share
    turned = loaded(evaluation__test_cases={"inline": inline[::-1], "holdout": share})
    assert held == {case.group for case in turned.holdout_cases}


def test_inputs_that_share_most_words_form_a_group_and_are_warned_of():
    nouns = [f"{a}{b}" for a in "bcdfghklmn" for b in ("ado", "irt", "ulm", "epo")]
    inputs = [
        f"{start} tell me how the {one} and the {other} of a {third} are paid {end}"
        for one, other, third in zip(nouns[::2], nouns[1::2], reversed(nouns[:20]), strict=False)
        for start, end in (("Please", ""), ("So", "now"), ("", "today"))
    ]
    inline = [
        {"id": f"c{i:03d}", "input": {"q": text}, "expected": ""} for i, text in enumerate(inputs)
    ]
    made = loaded(evaluation__test_cases={"inline": inline, "holdout": 0.3})
    groups = [case.group for case in made.cases]
    assert groups == [f"alike:c{i // 3 * 3:03d}" for i in range(60)]
    plain = loaded(evaluation__test_cases={"inline": _many(60), "holdout": 0.3})
    assert len(made.holdout_cases) == len(plain.holdout_cases)  # they are split one by one
    (warning,) = made.warnings
    assert "60 cases" in str(warning)
    assert "20 groups" in str(warning)
    written = [{**case, "group": f"own-{i}"} for i, case in enumerate(inline)]
    made = loaded(evaluation__test_cases={"inline": written, "holdout": 0.3})
    assert not made.warnings
    assert len({case.group for case in made.cases}) == 60


def test_equal_inputs_form_a_group_and_inputs_of_a_template_do_not():
    inline = [
        {"id": f"c{i}", "input": {"n": i // 2 if i < 4 else i}, "expected": ""} for i in range(12)
    ]
    made = loaded(evaluation__test_cases={"inline": inline})
    groups = ["alike:c0"] * 2 + ["alike:c2"] * 2 + [None] * 8
    assert [case.group for case in made.cases] == groups


def test_a_group_changes_the_hash_of_cases_and_its_absence_does_not():
    plain = loaded(evaluation__test_cases={"inline": _many(2)}).cases
    grouped = loaded(
        evaluation__test_cases={"inline": [{**case, "group": "g"} for case in _many(2)]}
    ).cases
    assert hash_of(plain) != hash_of(grouped)
    assert [case.group for case in grouped] == ["g", "g"]


def _many(n) -> Any:
    return [{"id": f"c{i}", "input": f"x{i}", "expected": "1"} for i in range(n)]
