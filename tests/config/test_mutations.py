"""Whatever is written, there is a configuration or a list of problems, never a traceback."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from convergence_core.config import Configuration, parse_configuration, parse_mapping, parse_stored
from convergence_core.errors import ConfigurationError
from tests.support.config_examples import EXAMPLES

N_MUTATIONS = 600
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 3.5, -0.0, 1e300, 1e-320, 10**30, 10**400, -(10**400),
    float("nan"), float("inf"), "", "x", "yes", "1e-5", "3", "a.b:c", "{t}", "{input", "\u2028\x00",
    "ä" * 300, "http://[::1", "://", "https://user:pw@x/", [], [[]], [None], ["a", "a"], {}, {"": 1},
    {"type": "float"}, {"enabled": True}, {"a": {"b": [1, {"c": None}]}},
)  # fmt: skip
CHARACTERS = "{}[]:,&*#?|-<>=!%@\\\"'`~ \t\n\r\x00\x85\ufeff\ud800\U0001f600äa1."
SNIPPETS = (
    "<<: *a", "&a ", "*a", "!!int ", "!x ", "? ", "---\n", "...\n", "- ", "'", '"', "\t", ": ",
    ".nan", "-.inf", "1e999", "9" * 5000, "0x", "~", "{", "[" * 80, "%YAML 1.1\n", "|\n", ">\n",
)  # fmt: skip


def parsed(text: str | bytes) -> Configuration | ConfigurationError:
    try:
        return parse_configuration(text, file="f.yaml")
    except ConfigurationError as error:
        return error


def check(result: Configuration | ConfigurationError) -> None:
    if isinstance(result, ConfigurationError):
        assert result.problems
        for problem in result.problems:
            assert problem.rule
            assert problem.fix
            assert "\n" not in problem.rule
            assert len(str(problem)) < 2000
    else:
        assert parse_stored(result.to_json()) == result


def delete_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return "".join(lines)


def repeat_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    return "".join([*lines[:j], lines[i], *lines[j:]])


def indent_line(text: str, rng: random.Random) -> str:
    lines = text.splitlines(keepends=True)
    i = rng.randrange(len(lines))
    lines[i] = rng.choice(["  ", " ", "\t", "      "]) + lines[i]
    return "".join(lines)


def put_characters(text: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 4)):
        i = rng.randrange(len(text))
        text = text[:i] + rng.choice(CHARACTERS) + text[i + rng.randint(0, 2) :]
    return text


def put_snippet(text: str, rng: random.Random) -> str:
    i = rng.randrange(len(text))
    return text[:i] + rng.choice(SNIPPETS) + text[i:]


def cut(text: str, rng: random.Random) -> str:
    i, j = sorted(rng.randrange(len(text)) for _ in range(2))
    return text[:i] + text[j:]


TEXT_MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    delete_line,
    repeat_line,
    indent_line,
    put_characters,
    put_snippet,
    cut,
)


def places_of(data: Any, above: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [above] if above else []
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, value in items:
        if isinstance(value, dict | list):
            found += places_of(value, (*above, key))
        else:
            found.append((*above, key))
    return found


@pytest.mark.parametrize("name", EXAMPLES)
def test_mutated_text_is_a_configuration_or_problems(name):
    rng = random.Random(f"text {name}")
    n_broken = 0
    for _ in range(N_MUTATIONS // 6):
        text = EXAMPLES[name]
        for _ in range(rng.randint(1, 3)):
            text = rng.choice(TEXT_MUTATIONS)(text, rng) or "#"
        result = parsed(text)
        check(result)
        n_broken += isinstance(result, ConfigurationError)
    assert n_broken > N_MUTATIONS // 12, "mutations hardly break anything"


@pytest.mark.parametrize("name", ["function", "azure"])
@pytest.mark.slow
def test_any_value_in_every_place_is_a_configuration_or_problems(name):
    rng = random.Random(f"places {name}")
    data = yaml.safe_load(EXAMPLES[name])
    for place in places_of(data):
        for value in rng.sample(VALUES, 6):
            mutated = copy.deepcopy(data)
            holder = mutated
            for parent in place[:-1]:
                holder = holder[parent]
            holder[place[-1]] = copy.deepcopy(value)
            try:
                check(parse_mapping(mutated))
            except ConfigurationError as error:
                check(error)
