"""The page that compares tools: lines as counted, and a configuration that is accepted."""

import re
from pathlib import Path

from benchmarks.compared.lines import HERE, counts
from benchmarks.compared.rival_runs import RUNS
from benchmarks.compared.rivals import CASES, WEAK, WRITTEN, Models
from convergence_core.config import parse_configuration

PAGE = (Path(__file__).parents[2] / "docs/compared.md").read_text(encoding="utf-8")


def test_the_page_has_the_lines_that_are_counted():
    n = counts()
    cases = n["promptfoo, test cases of both"]
    rows = [row for row in PAGE.splitlines() if row.startswith(("| | lines", "| | more lines"))]
    assert rows == [
        f"| | lines | {n['promptfoo function']} + {cases} ᵃ | \u2013 "
        f"| {n['with_optuna.py function']} | {n['The Convergence function']} ᵇ |",
        f"| | lines | {n['promptfoo chat']} + {cases} ᵃ | {n['with_dspy.py chat']} "
        f"| {n['with_optuna.py chat']} | {n['The Convergence chat']} |",
        f"| | more lines | 0 ᵉ | {n['with_dspy.py chat-held-out']} "
        f"| {n['with_optuna.py chat-held-out']} | 0 |",
    ]
    assert n["with_optuna.py function-held-out"] == n["with_optuna.py chat-held-out"]


def test_the_configuration_of_the_chat_is_accepted():
    parse_configuration((HERE / "chat.yaml").read_text("utf-8"), file=str(HERE / "chat.yaml"))


def test_the_model_of_the_prompt_optimizers_is_right_once_the_prompt_names_the_moods():
    models = Models()
    (command,) = re.findall(r"compared\.rivals (.+)", PAGE)
    assert {name.partition("=")[0] for name in command.split()} <= {*RUNS}
    for prompt in (WEAK, *WRITTEN):
        right = [
            models.answer(
                {"model": "task", "messages": [{"content": prompt}, {"content": message}]}
            )
            == mood
            for message, mood in CASES
        ]
        assert {*right} == {"angry, happy" in prompt}
    asked = "Respond with the corresponding output fields, starting with `[[ ## mood ## ]]`."
    written = models.answer({"model": "writer", "messages": [{"content": asked}]})
    assert written == f"[[ ## mood ## ]]\n{WRITTEN[0]}"
