"""The page that compares tools: lines as counted, and a configuration that is accepted."""

from pathlib import Path

from benchmarks.compared.lines import HERE, counts
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
