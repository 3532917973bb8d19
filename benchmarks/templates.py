"""Templates of agents and browser scripts: for which seeds a run finds the planted configuration.

    python -m benchmarks.templates --template agno-discord --seeds 10

Writes a template with ``convergence init``, optimizes it offline with its default budget for each seed, and prints
the results. The planted configuration is best by construction. An agent without the tools that list channels, posts
or emails cannot name the right one, and the third instructions make the mock careful. A browser script reads every
page only if it blocks advertisements, closes all covers, finds the price by its label, and waits longer than the
slowest page takes. Needs the extra ``agno``, ``agno-gmail``, or ``browserbase`` with Chromium.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import describe_machine, options
from benchmarks.tables import share_ends

ROOT: Final = Path(__file__).parents[1]
SLOWEST_MS: Final = 700
"""Delay of the price on the shop's slowest page."""


def _begins(text: str) -> Callable[[Any], bool]:
    return lambda value: str(value).startswith(text)


PLANTED: Final[Mapping[str, Mapping[str, Callable[[Any], bool]]]] = {
    "agno-discord": {"toolkit": _begins("all"), "instructions": _begins("You moderate a Discord")},
    "agno-reddit": {"toolkit": _begins("all"), "instructions": _begins("You look after subredd")},
    "agno-gmail": {"toolkit": _begins("all"), "instructions": _begins("You look after a mailbox")},
    "browserbase": {
        "block_ads": bool, "dismiss": _begins("all"), "find_by": _begins("label"),
        "patience_ms": lambda value: value > SLOWEST_MS,
    },
}  # fmt: skip
"""Template → parameter → test for planted values."""


def command(*arguments: str, cwd: Path) -> str:
    """Run the command line, which must succeed, and return its output."""
    done = subprocess.run(
        [sys.executable, "-m", "convergence", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


@contextmanager
def shop_of(folder: Path) -> Iterator[None]:
    """Serve the browser template's shop on a free port."""
    with subprocess.Popen(
        [sys.executable, "-u", "shop.py", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as shop:
        assert shop.stdout is not None
        root = shop.stdout.readline().split()[-1].rpartition("/")[0]
        cases = folder / "test_cases.json"
        there = cases.read_text("utf-8").replace("http://127.0.0.1:8812", root)
        cases.write_text(there, encoding="utf-8")
        try:
            yield
        finally:
            shop.terminate()


def found_of(template: str, seed: int, folder: Path, *sets: str) -> dict[str, Any]:
    """Return the result of a template's run with this seed."""
    command("init", ".", "--template", template, cwd=folder)
    words = [part for one in sets for part in ("--set", one)]
    with shop_of(folder) if template == "browserbase" else nullcontext():
        printed = command(
            "optimize", "--offline", "--json", "--seed", str(seed), *words, cwd=folder
        )
    found: dict[str, Any] = json.loads(printed)
    return found


def best_of(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a run's best parameters, proven or not."""
    chosen = result["challenger"] or result["winner"]
    best: Mapping[str, Any] = chosen["params"]
    return best


def is_planted(template: str, params: Mapping[str, Any]) -> bool:
    """Return whether a configuration has all planted values."""
    return all(has(params[name]) for name, has in PLANTED[template].items())


def main() -> None:
    """Print a line per seed, and the share of runs that found the planted configuration."""
    args = options(__doc__, template="agno-discord", seeds=10)
    print(describe_machine(), flush=True)
    n_found = 0
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as place:
            result = found_of(args.template, seed, Path(place))
        best = best_of(result)
        n_found += is_planted(args.template, best)
        shown = {name: str(best[name])[:40] for name in PLANTED[args.template]}
        print(f"seed {seed}: {result['verdict']['sentence']}  {shown}", flush=True)
    low, high = share_ends(n_found, args.seeds)
    print(f"{args.template}: found in {n_found} of {args.seeds} [{low:.2f}, {high:.2f}]")


if __name__ == "__main__":
    main()
