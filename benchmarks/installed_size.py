"""Installed size of the base dependencies, and of what each extra adds to them.

    python -m benchmarks.installed_size
    python -m benchmarks.installed_size --extras

The first compares the base with the nine that it cannot do without; both make fresh environments, so
they take minutes and need a package index. ``--extras`` measures all but those of PyTorch.
"""

import re
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine, options

ROOT = Path(__file__).parents[1]
NINE = ("prefect", "pydantic", "httpx", "numpy", "scipy", "polars", "duckdb", "openai", "pyyaml")
UNMEASURED = ("all", "local", "training", "docs", "lint", "test", "test-slow")
"""Extras that are sums of others, PyTorch, or for those who develop."""
MIB = 1024 * 1024


def installed(folder: Path, requirements: list[str]) -> dict[str, int]:
    """Install requirements into a new environment; return distribution → bytes of its files."""
    venv.create(folder, with_pip=True)
    return added(folder, requirements)


def added(folder: Path, requirements: list[str]) -> dict[str, int]:
    """Install requirements into an environment; return distribution → bytes of all its files."""
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


def measure_extras(project: dict[str, Any]) -> None:
    """Print what each extra brings beside the base, one after another in one environment."""
    extras = project["optional-dependencies"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "base"
        base = installed(folder, project["dependencies"])
        for name in [name for name in extras if name not in UNMEASURED]:
            sizes = added(folder, extras[name]) if extras[name] else base
            changed = {d: size for d, size in sizes.items() if base.get(d) != size}
            new = sorted(changed.keys() - base.keys(), key=lambda d: -changed[d])
            grown = sum(sizes.values()) - sum(base.values())
            largest = ", ".join(f"{d} {changed[d] / MIB:.1f}" for d in new[:3])
            print(
                f"{name:12} {grown / MIB:7.1f} MiB in {len(new):2} packages: {largest}", flush=True
            )
            if new:
                python = str(folder / "bin" / "python")
                subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", *new], check=True)
            if changed.keys() & base.keys():
                added(folder, project["dependencies"])


def main() -> None:
    """Measure the environments and print what the base, or each extra, adds."""
    args = options(__doc__, extras=False)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    print(describe_machine())
    if args.extras:
        measure_extras(project)
        return
    base = [str(requirement) for requirement in project["dependencies"]]
    nine = [r for r in base if re.split(r"[<>=\[ ]", r)[0] in (*NINE, "fastapi")]
    sizes = []
    for name, requirements in (("the nine", nine), ("ours", base)):
        with tempfile.TemporaryDirectory() as scratch:
            found = installed(Path(scratch) / "env", requirements)
        sizes.append(sum(found.values()))
        print(f"{name}: {sizes[-1] / MIB:.0f} MiB in {len(found)} distributions")
    print(f"share: {sizes[1] / sizes[0] - 1:+.1%}")


if __name__ == "__main__":
    main()
