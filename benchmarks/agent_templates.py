"""Agents of the templates: is the planted configuration found, with which seeds?

    python -m benchmarks.agent_templates --seeds 10

Writes each template by ``convergence init``, optimizes it offline with its default budget for each seed,
and prints what was found. Planted is what the template's instructions and tools are best for by construction:
without the tools that list channels, posts or emails no call can name the right one, and the third instructions make the
stand-in careful. A run finds it if the configuration that it names as best has both. Needs the extra ``agno``, or ``agno-gmail``.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from scipy.stats import binomtest

ROOT: Final = Path(__file__).parents[1]
PLANTED: Final[Mapping[str, Mapping[str, str]]] = {
    "agno-discord": {"toolkit": "all", "instructions": "You moderate a Discord server."},
    "agno-reddit": {"toolkit": "all", "instructions": "You look after subreddits."},
    "agno-gmail": {"toolkit": "all", "instructions": "You look after a mailbox."},
}
"""Template → parameter → how its planted value begins."""


def command(*arguments: str, cwd: Path) -> str:
    """Run the command line to its good end; return what it prints."""
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


def found_of(template: str, seed: int, folder: Path, *sets: str) -> dict[str, Any]:
    """Return what a run of a template with this seed ends with."""
    command("init", ".", "--template", template, "--non-interactive", cwd=folder)
    options = [part for one in sets for part in ("--set", one)]
    printed = command("optimize", "--offline", "--json", "--seed", str(seed), *options, cwd=folder)
    found: dict[str, Any] = json.loads(printed)
    return found


def best_of(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the parameters that a run names as best, proven to be better or not."""
    chosen = result["challenger"] or result["winner"]
    best: Mapping[str, Any] = chosen["params"]
    return best


def is_planted(template: str, params: Mapping[str, Any]) -> bool:
    """Whether a configuration has all that was planted."""
    return all(str(params[name]).startswith(value) for name, value in PLANTED[template].items())


def main() -> None:
    """Print a line for each seed, and the share of runs that found it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--template", choices=[*PLANTED], default="agno-discord")
    arguments = parser.parse_args()
    n_found = 0
    for seed in range(1, arguments.seeds + 1):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            result = found_of(arguments.template, seed, folder)
            space = yaml.safe_load((folder / "optimization.yaml").read_text())["search_space"]
        best = best_of(result)
        n_found += is_planted(arguments.template, best)
        shown = {name: str(best[name])[:40] for name in space["parameters"]}
        print(f"seed {seed}: {result['verdict']['sentence']}  {shown}", flush=True)
    interval = binomtest(n_found, arguments.seeds).proportion_ci(method="exact")
    print(
        f"{arguments.template}: planted configuration found in {n_found} of {arguments.seeds} seeds "
        f"(95 % interval of the share {interval.low:.2f} to {interval.high:.2f})"
    )


if __name__ == "__main__":
    main()
