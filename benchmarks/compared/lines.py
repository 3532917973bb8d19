"""Lines a user writes for each tool and task, without blank lines, comments and docstrings.

    python -m benchmarks.compared.lines

Counts Python between ``# begin NAME …`` and ``# end``; a part may belong to several tasks. Other files
count whole.
"""

from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WHOLE = {
    "The Convergence function": [ROOT / "convergence/templates/function/optimization.yaml"],
    "The Convergence chat": [HERE / "chat.yaml"],
    "promptfoo function": [HERE / "promptfoo" / n for n in ("function.yaml", "provider.py")],
    "promptfoo chat": [HERE / "promptfoo" / n for n in ("chat.yaml", "short.json", "rules.json")],
    "promptfoo, test cases of both": [HERE / "promptfoo/cases.py"],
}


def is_written(line: str) -> bool:
    """Return whether a line counts."""
    return bool(line.strip()) and not line.strip().startswith(("#", '"""'))


def marked(path: Path) -> Counter[str]:
    """Return the number of counted lines by mark name."""
    n_lines: Counter[str] = Counter()
    names: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.split()
        if words[:2] == ["#", "begin"]:
            names = words[2:]
        elif words == ["#", "end"]:
            names = []
        elif is_written(line):
            n_lines.update(names)
    return n_lines


def counts() -> dict[str, int]:
    """Return the number of lines by tool and task."""
    n_lines = {
        name: sum(
            is_written(line) for path in paths for line in path.read_text("utf-8").splitlines()
        )
        for name, paths in WHOLE.items()
    }
    for path in (HERE / "with_optuna.py", HERE / "with_dspy.py"):
        n_lines |= {f"{path.name} {name}": n for name, n in marked(path).items()}
    return n_lines


def main() -> None:
    """Print the numbers."""
    for name, n in counts().items():
        print(f"{n:3}  {name}")


if __name__ == "__main__":
    main()
