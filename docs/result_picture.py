"""Picture of the final output of ``convergence optimize``, from a run of the recorded exam.

    python -m docs.result_picture

Runs the template in a temporary folder, with its seed, and writes ``docs/pictures/result.svg``: progress
and findings as in a terminal. Needs no key and no network.
"""

import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

DOCS = Path(__file__).parent
WIDTH = 130
"""Characters per line, set by the widest table."""
COMMAND = "convergence optimize optimization.yaml"


def _convergence(arguments: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "convergence", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)


def printed(folder: Path) -> list[str]:
    """Return a run's output lines, progress first."""
    init = ["init", "exam", "--template", "recorded-exam"]
    _convergence(init, folder)
    done = _convergence(COMMAND.split()[1:], folder / "exam")
    return [*done.stderr.splitlines(), *done.stdout.rstrip().splitlines()]


def picture(lines: list[str]) -> str:
    """Return terminal lines as a self-contained SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ {COMMAND}", style="bold"))
    for line in lines:
        is_verdict = line.startswith(("Better than", "Likely better", "Not better", "No clear"))
        style = "bold green" if is_verdict else ""
        console.print(Text(line.rstrip(), style=style))
    svg = console.export_svg(title="convergence optimize", unique_id="result")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE).rstrip() + "\n"


def main() -> None:
    """Run the example and write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        lines = printed(Path(folder))
    (DOCS / "pictures/result.svg").write_text(picture(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
