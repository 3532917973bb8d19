"""Reading YAML: values, positions, and files that are none."""

from typing import Any

import pytest
import yaml

from convergence_core.config import parse_configuration, parse_mapping
from convergence_core.config.source import MAX_DEPTH, read_yaml, yaml_text
from convergence_core.errors import ConfigurationError, Problem
from tests.support.config_examples import edited


def read(text: str | bytes) -> Any:
    source = read_yaml(text, "f.yaml")
    assert source.problems == []
    return source.data


def only_problem(text: str | bytes) -> Problem:
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, file="f.yaml")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1E5", 1e5),
        (".5", 0.5),
        ("-1.", -1.0),
        ("0x1f", 31),
        ("010", 10),
        ("true", True),
        ("False", False),
        ("on", "on"),
        ("yes", "yes"),
        ("no", "no"),
        ("off", "off"),
        ("~", None),
        ("", None),
        ("2024-08-06", "2024-08-06"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
    ],
)
def test_scalars_are_read_by_yaml_1_2(text, value):
    data = read(f"a: {text}\n")
    assert data == {"a": value}
    assert type(data["a"]) is type(value)


@pytest.mark.parametrize(
    "text", ["1e5", "-1.5E3", ".5", "0o17", "017", "3.10", "on", "No", "TRUE", "~", "", "12:30", "2024-01-02", "<<", "é"]
)  # fmt: skip
def test_a_written_text_is_read_as_a_text(text):
    data = {"value": text, "number": 1e-5, "list": [None, True, 3]}
    assert read(yaml_text(data)) == yaml.safe_load(yaml_text(data)) == data


def test_no_and_on_are_texts_as_keys_too():
    assert read("on: 1\nno: 2\nyes: 3\n") == {"on": 1, "no": 2, "yes": 3}


def test_every_key_and_value_has_its_position():
    source = read_yaml("a:\n  b: [1,\n      ä, x]\n", "f.yaml")
    key, value = source.keys["a", "b"], source.values["a", "b", 2]
    assert (key.line, key.column) == (2, 3)
    assert (value.line, value.column) == (3, 10)


def test_byte_order_mark_is_skipped():
    assert read(b"\xef\xbb\xbfa: 1\n") == {"a": 1}
    assert read("\ufeffa: 1\n") == {"a": 1}
    assert read("a: ä\n".encode("utf-16")) == {"a": "ä"}


def test_merge_keys_yield_to_own_keys():
    text = "x: &x {a: 1, b: 2}\ny: &y {b: 3, c: 4}\nz:\n  <<: [*x, *y]\n  a: 9\n"
    assert read(text)["z"] == {"a": 9, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("text", "line", "column", "rule"),
    [
        ("", None, None, "must not be empty"),
        ("# only a comment\n", None, None, "must not be empty"),
        ("---\n", None, None, "mapping of sections"),
        ("- api\n", 1, 1, "mapping of sections"),
        ("just text\n", 1, 1, "mapping of sections"),
        ("api:\n\tname: x\n", 2, 1, "spaces, not tabs"),
        ("api: [1, 2\n", None, None, "must be closed"),
        ("api: {name: x\n", None, None, "must be closed"),
        ("api: 'x\n", None, None, "must end with its quote"),
        ("api: a: b\n", 1, 7, "must follow a key"),
        ("api: @x\n", 1, 6, "YAML reserves"),
        ("api: *missing\n", 1, 6, "must follow its anchor"),
        ("a: &x 1\nb: &x 2\n", None, None, "defined once"),
        ("---\na: 1\n---\nb: 2\n", 3, 1, "one YAML document"),
        ("a: \x07\n", 1, 4, "no control characters"),
        ("a: \ud800\n", 1, 4, "no control characters"),
        (b"a: \xe4\n", 1, 4, "must be UTF-8"),
        (b"\xff\xfea", None, None, "must be UTF-8"),
    ],
)
def test_a_file_that_is_no_mapping_is_one_clear_problem(text, line, column, rule):
    problem = only_problem(text)
    assert rule in problem.rule
    assert problem.fix
    assert problem.file == "f.yaml"
    if line is not None:
        assert (problem.line, problem.column) == (line, column)


def test_syntax_errors_do_not_show_the_file():
    problem = only_problem("api: {auth: [token: hunter2hunter2\n")
    assert "hunter2" not in str(problem)


def test_nesting_is_bounded():
    assert "must not nest deeper" in only_problem("[" * 100_000).rule
    deep = "{a: " * (MAX_DEPTH - 2) + "1" + "}" * (MAX_DEPTH - 2)
    assert read(deep)


def test_a_billion_laughs_are_refused():
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "aliases counted in full" in only_problem("\n".join(lines)).rule


def test_a_billion_merges_are_refused():
    lines = ["m0: &m0 {a: 1}"]
    lines += [
        f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 10)}]\n  k{i}: 1" for i in range(1, 10)
    ]
    assert "must not hold more than" in only_problem("\n".join(lines)).rule


@pytest.mark.parametrize(
    ("text", "key", "rule"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", "stands on lines 1 and 3"),
        ("x: {k: 1, k: 2}\n", "x.k", "stands on lines 1 and 1"),
        ("x: {3: 1}\n", "x", "must have strings as keys, but one of them is `3`"),
        ("x: {true: 1}\n", "x", "must have strings as keys, but one of them is `true`"),
        ("x: {null: 1}\n", "x", "must have strings as keys"),
        ("x:\n  ? [a]\n  : 1\n", "x", "must have strings as keys"),
        ("x: .nan\n", "x", "finite"),
        ("x: -.inf\n", "x", "finite"),
        ("x: 1e999\n", "x", "finite"),
        (f"x: {'9' * 5000}\n", "x", "can be read"),
        ("x: !!python/object:os.system ls\n", "x", "no YAML tag"),
        ("x: !!set {a}\n", "x", "no YAML tag"),
        ("x: !mine [1]\n", "x", "no YAML tag"),
        ("x: !!int abc\n", "x", "can be read"),
        ("x:\n  <<: 3\n", "x", "must merge"),
    ],
)
def test_values_that_no_configuration_needs_are_refused(text, key, rule):
    source = read_yaml(text, "f.yaml")
    (problem,) = source.problems
    assert problem.key == key
    assert rule in problem.rule
    assert problem.fix
    assert problem.line is not None


def test_a_section_that_is_written_empty_is_one_that_is_not_written():
    written = parse_mapping(edited({"society": {"enabled": False, "llm": None}}))
    assert written == parse_mapping(edited({"society": {"enabled": False}}))
