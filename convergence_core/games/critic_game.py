"""Critic game (G3): inputs that break the incumbent, told by execution.

A critic writes an input. It scores 1 if the reference solution solves it, the check accepts the
reference's answer and refuses the incumbent's; else 0, with the reason. So neither a broken check nor an
input that nobody can solve pays, and a time-out or a forbidden system call anywhere scores 0. Programs
run in a role of their own, ``sandbox`` (``tasks/games/sandbox.py``); the score reads what it reported.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from convergence_core.games.game import Facts, Feed, Scores, Turn, Turns
from convergence_core.ports import Ask
from convergence_core.records import Json, canonical_json


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticTask:
    """A task with executed truth. All sources are the owner's, never a model's."""

    task_id: str
    prompt: str
    """What the incumbent is told; ``{input}`` stands for the critic's input."""
    rules: str
    """What a legal input is, for the critic."""
    reference: str
    """Python source with ``solve(input)``, which returns the right answer; it raises for illegal inputs."""
    check: str | None = None
    """Python source with ``check(input, answer)``, true for right answers; ``None``: the answer is
    source with ``solve(input)`` itself, and must return what the reference returns."""


def regular_expression_check(pattern: str) -> str:
    """Return a check's source: the whole answer matches a pattern."""
    return _source(f"regular_expression({pattern!r}, answer)")


def json_schema_check(schema: Mapping[str, Json]) -> str:
    """Return a check's source: the answer is JSON that obeys a schema."""
    return _source(f"json_schema(json.loads({json.dumps(dict(schema))!r}), answer)")


def arithmetic_check() -> str:
    """Return a check's source: the answer is the exact value of the input, an arithmetic expression."""
    return _source("arithmetic(input, answer)")


def _source(expression: str) -> str:
    return f"import json\nfrom checkers import *\n\ndef check(input, answer):\n    return {expression}\n"


@dataclass(frozen=True, slots=True)
class CriticGame:
    """G3: an input meant to break the incumbent.

    Raises:
        ValueError: there is no task, or a prompt has no place for the input.
    """

    tasks: tuple[CriticTask, ...]
    id: ClassVar[str] = "critic"
    version: ClassVar[int] = 1
    roles: ClassVar[tuple[str, ...]] = ("critic", "incumbent", "sandbox")
    cost: ClassVar[Mapping[str, int]] = {"critic": 1, "incumbent": 1, "sandbox": 3}
    feeds: ClassVar[Feed] = "hard_cases"
    grounded: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("`tasks` must hold a task at least")
        for task in self.tasks:
            if "{input}" not in task.prompt:
                raise ValueError(f"`prompt` of {task.task_id!r} must hold {{input}}. Write it in.")

    def protocol(self, rng: np.random.Generator) -> Turns:
        """Ask for an input; solve and check it; only then ask the incumbent. Facts: the task."""
        task = self.tasks[int(rng.integers(len(self.tasks)))]
        facts: Facts = {"task": task.task_id}
        written = yield Ask(
            role="critic",
            text=(
                f"A system is told:\n{task.prompt}\n\nWrite an input on which it fails and that a correct "
                f"program solves. {task.rules}\nReply with the input alone."
            ),
        )
        solved = yield _execution(task.reference, "solve", [written])
        report = _report(solved)
        if report["ending"] != "ok":
            return facts
        value = report["value"]
        right = value if isinstance(value, str) else canonical_json(value)
        if task.check is not None:
            accepted = yield _execution(task.check, "check", [written, right])
            if not _is_true(_report(accepted)):
                return facts
        answer = yield Ask(role="incumbent", text=task.prompt.replace("{input}", written))
        if task.check is not None:
            yield _execution(task.check, "check", [written, answer])
        else:
            yield _execution(answer, "solve", [written])
        return facts

    def score(self, turns: Sequence[Turn], facts: Facts) -> Scores:
        """Return 1 if the incumbent failed where the reference did not, else 0 with the reason."""
        task = next(one for one in self.tasks if one.task_id == facts["task"])
        reports = [_report(turn.reply) for turn in turns if turn.ask.role == "sandbox"]
        reference = reports[0]
        if reference["ending"] != "ok":
            return _none(f"the reference did not solve the input: {reference['reason']}")
        if task.check is not None and not _is_true(reports[1]):
            return _none(
                "the check refuses the reference's own answer"
                if reports[1]["ending"] == "ok"
                else f"the check broke: {reports[1]['reason']}"
            )
        last = reports[-1]
        if task.check is not None:
            if last["ending"] != "ok":
                return _none(f"the check broke: {last['reason']}")
            failed = not _is_true(last)
        else:
            if last["ending"] not in ("ok", "error"):
                return _none(f"the incumbent's program went too far: {last['reason']}")
            failed = last["ending"] == "error" or last["value"] != reference["value"]
        return Scores(by_role={"critic": 1.0}) if failed else _none("the incumbent was right")


def _none(reason: str) -> Scores:
    return Scores(by_role={"critic": 0.0}, reason=reason)


def _execution(program: str, function: str, arguments: list[Json]) -> Ask:
    text = canonical_json({"program": program, "function": function, "arguments": arguments})
    return Ask(role="sandbox", text=text)


def _report(reply: str) -> dict[str, Any]:
    """Return the sandbox's report; one of another form counts as a crash."""
    try:
        found = json.loads(reply)
        canonical_json(found)  # no NaN: what it returned may become the text that is checked
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not {"ending", "reason", "value"} <= found.keys():
        return {"ending": "crashed", "reason": "the sandbox reported nothing", "value": None}
    return found


def _is_true(report: Mapping[str, Any]) -> bool:
    return report["ending"] == "ok" and report["value"] is True
