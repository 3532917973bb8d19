"""CPU of `import convergence` and of `convergence --help`, against a bare interpreter.

python -m benchmarks.startup [--runs 11]
"""

import os
import statistics
import sys

from benchmarks.machine import describe_machine, measure, options


def main() -> None:
    """Measure and print a table."""
    runs = options(__doc__, runs=11).runs
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import convergence": [sys.executable, "-c", "import convergence"],
        "convergence --help": [sys.executable, "-m", "convergence", "--help"],
        "convergence version": [sys.executable, "-m", "convergence", "version"],
    }
    env = dict(os.environ)
    print(describe_machine())
    print(f"{'command':24} {'median CPU s':>12} {'max':>8}")
    for name, command in commands.items():
        measure(command, env=env)  # warm the page cache and the byte code
        cpu = [measure(command, env=env).cpu_s for _ in range(runs)]
        print(f"{name:24} {statistics.median(cpu):12.3f} {max(cpu):8.3f}")


if __name__ == "__main__":
    main()
