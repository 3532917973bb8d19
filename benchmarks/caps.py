"""Check by the service's own count that limits hold for every kind of target.

    python -m benchmarks.caps --runs 200

Each run number determines a kind in turn, limits of dollars, calls and tokens, workers, retries, and the faults of a
local service that speaks the kind's protocol (429, 500 or 529, truncated or invalid JSON). The table compares each
run's ledger with the service's own counts and bills. Exits with 1 if a run exceeded a limit, a ledger lacks a request,
or the service billed more than the ledger shows.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import options
from benchmarks.tables import header, row
from tests.support.paid_kinds import KINDS, Outcome, run_of


def main() -> int:
    """Print a line for each kind; return the exit code."""
    n_runs = options(__doc__, runs=200).runs
    found: dict[str, list[Outcome]] = {kind: [] for kind in KINDS}
    for seed in range(n_runs):
        kind = [*KINDS][seed % len(KINDS)]
        with tempfile.TemporaryDirectory() as place:
            one = run_of(kind, Path(place), seed)
        found[kind].append(one)
        told = f"{seed}: {kind}, {dict(one.budget)}: {one.n_calls} calls, ${one.billed_usd:.6f}"
        print(f"{told}; broken: {', '.join(one.broken) or 'nothing'}", file=sys.stderr, flush=True)
    names = ("kind", "runs", "ended by a limit", "calls", "billed by the service")
    print(header(*names, "most of `max_usd`", "rules broken"))
    for kind, runs in found.items():
        print(line(kind, runs))
    every = [one for runs in found.values() for one in runs]
    print(line("all", every))
    return int(any(one.broken for one in every))


def line(kind: str, runs: Sequence[Outcome]) -> str:
    """Return the row of a kind."""
    shares = [one.share for one in runs if one.share is not None]
    most = f"{100 * max(shares):.1f} %" if shares else "no such limit"
    n_ended = sum(one.result.status == "budget" for one in runs)
    n_broken = sum(len(one.broken) for one in runs)
    n_calls, usd = sum(one.n_calls for one in runs), sum(one.billed_usd for one in runs)
    return row(kind, len(runs), n_ended, f"{n_calls:,}", f"${usd:.4f}", most, n_broken)


if __name__ == "__main__":
    sys.exit(main())
