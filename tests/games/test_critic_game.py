"""The critic's game (G3) over the real limited process, and the checks that programs import."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from convergence_core.games.contract import FixedPlayer, broken_rules
from convergence_core.games.critic_game import (
    CriticGame,
    CriticTask,
    arithmetic_check,
    json_schema_check,
    regular_expression_check,
)
from convergence_core.games.game import PlayKey, Scores
from convergence_core.games.play import play
from convergence_core.ports import Ask, Player
from tasks.games import checkers
from tasks.games.players import SandboxPlayer, why_unsound
from tasks.games.sandbox import Sandbox, SandboxLimits

SANDBOX = Sandbox(limits=SandboxLimits(cpu_s=1, wall_s=60.0))
KEY = PlayKey(run_seed=2, round_number=0, index=0)

SUM = CriticTask(
    task_id="sum",
    prompt="Calculate: {input}",
    rules="An input is an expression of numbers, + - * / and brackets.",
    reference="from checkers import evaluate\n\ndef solve(input):\n    return str(evaluate(input))\n",
    check=arithmetic_check(),
)
REVERSE = CriticTask(
    task_id="reverse",
    prompt="Write a Python function solve(input) that returns the words of a text in reverse order.\n{input}",
    rules="An input is a text.",
    reference="def solve(input):\n    return ' '.join(reversed(input.split()))\n",
)


def scored(task: CriticTask, *, critic: str, incumbent: str, sandbox: Sandbox = SANDBOX) -> Scores:
    players: dict[str, Player] = {
        "critic": FixedPlayer(critic),
        "incumbent": FixedPlayer(incumbent),
        "sandbox": SandboxPlayer(sandbox),
    }
    return play(CriticGame((task,)), players, KEY).scores


def test_an_input_that_breaks_the_incumbent_alone_is_worth_one():
    assert scored(SUM, critic="2*(3+4)", incumbent="10").by_role == {"critic": 1.0}
    right = scored(SUM, critic="2*(3+4)", incumbent=" 14.")
    assert (right.by_role, right.reason) == ({"critic": 0.0}, "the incumbent was right")


@pytest.mark.parametrize(
    ("task", "critic", "why"),
    [
        (SUM, "2*(3+", "the reference did not solve the input: it raised ValueError"),
        (SUM, "__import__('os')", "the reference did not solve the input"),
        (replace(SUM, check="def check(input, answer): return 1 / 0"), "1+1", "the check broke"),
        (replace(SUM, check="def check(input, answer): return 1"), "1+1", "refuses the reference"),
        (replace(SUM, check="def chek(input, answer): return True"), "1+1", "it defines no `check`"),
        (
            replace(SUM, check="def check(input, answer): return answer == 'x' or 1 / (answer == '2')"),
            "1+1",
            "the check refuses the reference's own answer",
        ),
        (
            replace(SUM, check="def check(input, answer):\n  return answer == '2' or 1 / 0"),
            "1+1",
            "the check broke: it raised ZeroDivisionError",
        ),
        (
            replace(SUM, check="def check(input, answer):\n  while answer != '2': pass\n  return True"),
            "1+1",
            "the check broke: it used up its CPU time",
        ),
        (
            replace(SUM, check="import socket\ndef check(input, answer): return answer == '2'"),
            "1+1",
            "the check broke: the program tried to use the network",
        ),
        (
            replace(SUM, reference="import socket\ndef solve(input): return '2'"),
            "1+1",
            "the reference did not solve the input: the program tried to use the network",
        ),
        (
            replace(SUM, reference="def solve(input):\n  while True: pass"),
            "1+1",
            "the reference did not solve the input: it used up its CPU time",
        ),
    ],
)  # fmt: skip
def test_what_is_broken_scores_nothing_with_its_reason(task: CriticTask, critic: str, why: str):
    found = scored(task, critic=critic, incumbent="3")
    assert found.by_role == {"critic": 0.0}
    assert why in found.reason


@pytest.mark.parametrize(
    ("answer", "value", "why"),
    [
        ("def solve(input): return ' '.join(input.split()[::-1])", 0.0, "the incumbent was right"),
        ("def solve(input): return input[::-1]", 1.0, ""),
        ("def solve(input): return input.no_such_method()", 1.0, ""),
        ("I cannot write programs.", 1.0, ""),
        ("def solve(input):\n  while True: pass", 0.0, "went too far: it used up its CPU time"),
        (
            "import socket\ndef solve(input): return ''",
            0.0,
            "went too far: the program tried to use",
        ),
        ("import random\nrandom._os.kill(1, 9)", 0.0, "went too far: the program tried to use"),
        ("def solve(input): return 'x' * 10**10", 0.0, "went too far: it needed more memory"),
    ],
)
def test_an_incumbent_that_writes_a_program_is_held_against_the_reference(answer, value, why):
    found = scored(REVERSE, critic="one two three", incumbent=answer)
    assert found.by_role == {"critic": value}, found
    assert why in found.reason


def test_a_program_cannot_forge_a_right_answer_without_having_it():
    forged = (
        "import random\nos = random._os\n"
        'os.write(1, b\'{"status": "ok", "value": "a b", "reason": ""}\')\nos._exit(0)\n'
    )
    # What it reports is its answer, and this one is wrong.
    assert scored(REVERSE, critic="one two", incumbent=forged).by_role == {"critic": 1.0}


def test_the_incumbent_is_asked_only_for_inputs_that_the_reference_solves():
    class Counting:
        n = 0

        def answer(self, ask: Ask, rng: np.random.Generator) -> str:
            self.n += 1
            return "3"

    incumbent = Counting()
    for critic in ("no arithmetic", "", "9" * 15_000):
        players: dict[str, Player] = {
            "critic": FixedPlayer(critic), "incumbent": incumbent, "sandbox": SandboxPlayer(SANDBOX),
        }  # fmt: skip
        assert play(CriticGame((SUM,)), players, KEY).scores.by_role == {"critic": 0.0}
    assert incumbent.n == 0


@pytest.mark.parametrize(
    "reply",
    [
        "", "{}", "[]", "null", '{"ending": "ok"}', "x" * 30_000,
        '{"ending": "ok", "reason": "", "value": NaN}', '{"ending": "ok", "reason": "", "value": 1e999}',
    ],
)  # fmt: skip
def test_a_sandbox_that_reports_nothing_scores_nothing(reply: str):
    players = {
        "critic": FixedPlayer("1+1"), "incumbent": FixedPlayer("3"), "sandbox": FixedPlayer(reply)
    }  # fmt: skip
    found = play(CriticGame((SUM,)), players, KEY).scores
    assert found.by_role == {"critic": 0.0}
    assert "the sandbox reported nothing" in found.reason


class Solves:
    """A sandbox double for the contract: it says that all programs return True."""

    def answer(self, ask: Ask, rng: np.random.Generator) -> str:
        return '{"ending": "ok", "reason": "", "value": true}'


def test_the_game_keeps_the_contract():
    assert broken_rules(CriticGame((SUM, REVERSE)), {"sandbox": Solves()}) == []


def test_tasks_without_a_place_for_the_input_are_refused():
    with pytest.raises(ValueError, match=r"must hold \{input\}"):
        CriticGame((replace(SUM, prompt="Calculate."),))
    with pytest.raises(ValueError, match="a task at least"):
        CriticGame(())


def test_a_task_is_tried_before_it_is_played():
    assert why_unsound(SUM, ["1+1", "2*3"], SANDBOX) == ""
    assert why_unsound(REVERSE, ["a b"], SANDBOX) == ""
    assert "fails for 'x'" in why_unsound(SUM, ["x"], SANDBOX)
    odd = replace(SUM, check="def check(input, answer): return None")
    assert "it returns no true value" in why_unsound(odd, ["1+1"], SANDBOX)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (regular_expression_check(r"\d{4}-\d\d-\d\d"), "2026-01-02\n", "2 January"),
        (json_schema_check({"type": "object", "required": ["id"]}), '{"id": 1}', '{"no": 1}'),
        (arithmetic_check(), "8", "9"),
    ],
)
def test_checks_run_as_programs(check: str, right: str, wrong: str):
    for answer, value in ((right, True), (wrong, False)):
        found = SANDBOX.run(check, function="check", arguments=["2*4", answer])
        assert (found.ending, found.value) == ("ok", value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1/3+1/6", Fraction(1, 2)), ("-(2.5)*4", -10), ("0.1+0.2", Fraction(3, 10)), ("1e3", 1000)],
)
def test_arithmetic_is_exact(expression: str, value: Fraction):
    assert checkers.evaluate(expression) == value


@pytest.mark.parametrize(
    "expression",
    ["1/0", "2**999", "x", "'a'*9", "1,2", "[1]", "(" * 500 + "1", "f()", "True", "1j",
     "*".join(["9" * 900] * 9), ""],
)  # fmt: skip
def test_what_is_no_arithmetic_is_refused(expression: str):
    with pytest.raises(ValueError, match=r"no arithmetic|grow too long"):
        checkers.evaluate(expression)
    assert not checkers.arithmetic("1+1", expression)


SCHEMA = {
    "type": "object",
    "title": "An order", "description": "As the shop keeps it",
    "required": ["id", "items"],
    "properties": {
        "id": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "items": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
        "state": {"enum": ["open", "paid", 1]},
        "price": {"anyOf": [{"type": "null"}, {"type": "number", "minimum": 0, "maximum": 9.5}]},
        "flag": {"const": True},
        "note": {"allOf": [{"type": "string"}, {"not": {"const": "x"}}]},
        "code": {"oneOf": [{"type": "integer"}, {"minimum": 5}]},
    },
    "additionalProperties": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("more", "obeys"),
    [
        ({}, True), ({"id": "A"}, False), ({"id": "a"}, False), ({"id": "abcdef"}, False),
        ({"items": []}, False), ({"items": [1, 2, 3]}, False), ({"items": [1.5]}, False),
        ({"items": [1.0]}, True), ({"items": [True]}, False), ({"state": "paid"}, True),
        ({"state": True}, False), ({"price": None}, True), ({"price": 9.6}, False), ({"price": -1}, False),
        ({"flag": 1}, False), ({"flag": True}, True), ({"note": "x"}, False), ({"note": "y"}, True),
        ({"code": 7}, False), ({"code": 3}, True), ({"code": 7.5}, True), ({"other": 1}, False),
    ],
)  # fmt: skip
def test_schemas_agree_with_the_reference_implementation(more: dict[str, object], obeys: bool):
    import jsonschema

    value = {"id": "abc", "items": [1], **more}
    assert checkers.obeys(SCHEMA, value) is obeys
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(value) is obeys


def test_an_unknown_keyword_is_never_skipped():
    with pytest.raises(ValueError, match="'multipleOf' is not checked here"):
        checkers.obeys({"multipleOf": 2}, 3)
    assert not checkers.json_schema({}, "no JSON")
    assert not checkers.json_schema(False, "1")
    assert checkers.json_schema(True, "1")
