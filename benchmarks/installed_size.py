"""Installed size of the project, its dependencies and the named extras.

    python -m benchmarks.installed_size
    python -m benchmarks.installed_size --extras agno games

Each install goes into an empty folder, takes minutes and needs a package index.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe_machine, options

ROOT = Path(__file__).parents[1]
MIB = 1024 * 1024


def installed(extra: str) -> tuple[float, int]:
    """Install the project with an extra ("" means none); return total MiB and number of distributions."""
    name = f"{ROOT}[{extra}]" if extra else str(ROOT)
    with tempfile.TemporaryDirectory() as folder:
        install = f"install -q --no-compile --target {folder} -c constraints.txt".split()
        subprocess.run([sys.executable, "-m", "pip", *install, name], check=True, cwd=ROOT)
        sizes = [path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file()]
        return sum(sizes) / MIB, len(list(Path(folder).glob("*.dist-info")))


def main() -> None:
    """Print the base size and what each extra adds."""
    args = options(__doc__, extras=("",))
    print(describe_machine())
    base, distributions = installed("")
    print(f"base: {base:.0f} MiB in {distributions} distributions")
    for extra in filter(None, args.extras):
        size, count = installed(extra)
        print(f"{extra:12} {size - base:+7.1f} MiB in {count - distributions} more", flush=True)


if __name__ == "__main__":
    main()
