"""The template ``browserbase`` over many seeds: how often its planted configuration is found, without a key.

    python -m benchmarks.browsers [--seeds 10]

Each seed is the command `convergence optimize --offline` in a fresh folder, beside the template's shop: Chromium on
this machine opens its pages. Found is what reads every page right: advertisements blocked, all covers closed, the
price found by its label, and more patience than the slowest page takes. Needs the extra ``browserbase``, and Chromium.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from scipy.stats import binomtest

from benchmarks.machine import describe_machine
from convergence.templates import plan_files

PLANTED: Final = {"block_ads": True, "dismiss": "all", "find_by": "label"}
SLOWEST_MS: Final = 700
"""How long the slowest page lets its price wait."""


def is_planted(params: Mapping[str, Any]) -> bool:
    """Whether a configuration reads every page of the shop."""
    is_right = all(params[name] == value for name, value in PLANTED.items())
    return is_right and params["patience_ms"] > SLOWEST_MS


@contextmanager
def shop_of(folder: Path) -> Iterator[None]:
    """Write the template, and serve its shop at a free port."""
    for name, text in plan_files("browserbase", {}).items():
        (folder / name).write_text(text, encoding="utf-8")
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


def optimize(folder: Path, seed: int, *sets: str) -> Any:
    """Return the result of one run of the command, with other values of keys (``key=value``)."""
    options = [part for one in sets for part in ("--set", one)]
    words = ("optimize", "--offline", "--json", "--seed", str(seed), *options)
    with shop_of(folder):
        done = subprocess.run(
            [sys.executable, "-m", "convergence", *words],
            cwd=folder,
            stdout=subprocess.PIPE,
            check=True,
        )
    return json.loads(done.stdout)


def main() -> None:
    """Run the seeds; print one line for each, and how many found the planted configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    n_seeds = parser.parse_args().seeds
    print(describe_machine(), flush=True)
    n_found = 0
    for seed in range(1, n_seeds + 1):
        with tempfile.TemporaryDirectory() as scratch:
            result = optimize(Path(scratch), seed)
        params = result["winner"]["params"]
        n_found += is_planted(params)
        told = "found" if is_planted(params) else "not found"
        print(f"seed {seed}: {told}, {result['n_calls']} sessions, {params}", flush=True)
        print(f"  {result['verdict']['sentence']}", flush=True)
    interval = binomtest(n_found, n_seeds).proportion_ci(method="exact")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_min = (used.ru_utime + used.ru_stime) / 60 / n_seeds
    print(
        f"planted configuration found in {n_found} of {n_seeds} seeds "
        f"(95 % interval of the share {interval.low:.2f} to {interval.high:.2f})"
    )
    print(f"{cpu_min:.1f} CPU minutes a run, without Chromium's")


if __name__ == "__main__":
    main()
