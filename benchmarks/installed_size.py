"""Installed size of the base dependencies against that of the nine they cannot do without.

    python -m benchmarks.installed_size

Makes two fresh environments, so it takes minutes and needs a package index.
"""

import re
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path

from benchmarks.machine import describe_machine

ROOT = Path(__file__).parents[1]
NINE = ("prefect", "pydantic", "httpx", "numpy", "scipy", "polars", "duckdb", "openai", "pyyaml")


def installed(folder: Path, requirements: list[str]) -> dict[str, int]:
    """Install requirements into a new environment; return distribution → bytes of its files."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["-c", str(ROOT / "constraints.txt")]
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--no-compile", *constraints, *requirements],
        check=True,
    )
    code = (
        "from importlib.metadata import distributions\n"
        "for d in distributions():\n"
        "    size = sum(f.locate().stat().st_size for f in d.files or () if f.locate().is_file())\n"
        "    print(d.name.lower(), size)"
    )
    output = subprocess.run(
        [str(python), "-c", code], check=True, capture_output=True, text=True
    ).stdout
    sizes = dict(line.split() for line in output.splitlines())
    return {name: int(size) for name, size in sizes.items() if name not in {"pip", "setuptools"}}


def main() -> None:
    """Measure both environments and print what the base adds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    base = [str(requirement) for requirement in project["dependencies"]]
    nine = [r for r in base if re.split(r"[<>=\[ ]", r)[0] in (*NINE, "fastapi")]
    with tempfile.TemporaryDirectory() as scratch:
        without = installed(Path(scratch) / "nine", nine)
        with_ours = installed(Path(scratch) / "base", base)
    mib = 1024 * 1024
    print(describe_machine())
    print(f"the nine: {sum(without.values()) / mib:.0f} MiB in {len(without)} distributions")
    print(f"ours:     {sum(with_ours.values()) / mib:.0f} MiB in {len(with_ours)} distributions")
    print(f"share:    {sum(with_ours.values()) / sum(without.values()) - 1:+.1%}")
    for name in sorted(with_ours.keys() - without.keys()):
        print(f"  + {name:24} {with_ours[name] / mib:8.2f} MiB")
    print("largest:")
    for name, size in sorted(with_ours.items(), key=lambda item: -item[1])[:12]:
        print(f"    {name:24} {size / mib:8.2f} MiB")


if __name__ == "__main__":
    main()
