"""Environments of the benchmark, apart from the project's own, so that its extras stay slim.

    python -m benchmarks.optimizer.environments main         # tasks, Optuna, the project itself
    python -m benchmarks.optimizer.environments hebo smac    # peers, each in its own

They lie in ``benchmarks/.venv/<name>``. HEBO needs NumPy 1.24; of what it lists, CatBoost and GPy
are left out, since its default surrogate imports neither.
"""

import argparse
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / ".venv"
HERE = Path(__file__).parent

INSTALLS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "main": (
        ("-c", "constraints.txt", "-e", "."),
        ("-c", "constraints.txt", "-r", str(HERE / "requirements.txt")),
    ),
    "hebo": (("-r", str(HERE / "requirements-hebo.txt")), ("--no-deps", "HEBO==0.3.6")),
    "smac": (("-r", str(HERE / "requirements-smac.txt")),),
}
"""Arguments of ``pip install``, call by call."""


def python_of(name: str) -> Path:
    """Return the interpreter of an environment.

    Raises:
        FileNotFoundError: the environment was not made.
    """
    python = FOLDER / name / "bin" / "python"
    if not python.exists():
        raise FileNotFoundError(
            f"{python} does not exist; run `python -m benchmarks.optimizer.environments {name}`"
        )
    return python


def make(name: str) -> None:
    """Make an environment; one that exists is brought up to date."""
    subprocess.run([sys.executable, "-m", "venv", str(FOLDER / name)], check=True)
    for arguments in INSTALLS[name]:
        install = [str(python_of(name)), "-m", "pip", "install", "-q", *arguments]
        subprocess.run(install, check=True, cwd=ROOT)


def main() -> None:
    """Make the environments that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(INSTALLS))
    for name in parser.parse_args().names:
        make(name)
        print(f"{name}: {python_of(name)}")


if __name__ == "__main__":
    main()
