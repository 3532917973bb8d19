"""A limit of calls per second over several processes: our moments in SQLite and Postgres, and Prefect's.

    python -m benchmarks.rates [--kinds sqlite postgres prefect] [--seconds 4]

Four processes ask for leave as fast as they get it. Told are how many a second they get without a
limit that binds (for Prefect: one that decays 10,000 slots a second), the CPU of asking, and, at a
limit of 10 a second, the most that fell into any second.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.machine import cpu_of, describe_machine
from tasks.store.journal.rates import open_rates
from tests.support.prefect_server import PrefectServer

N_PROCESSES = 4
LIMIT = 10.0
FAST = 10_000.0


def leave_of(kind: str, where: str, per_second: float) -> Callable[[], None]:
    """Return what returns when the next call may leave."""
    if kind == "prefect":
        from prefect.concurrency.sync import rate_limit  # noqa: PLC0415 - takes seconds

        name = "slow" if per_second == LIMIT else "fast"
        return lambda: rate_limit(name, strict=True)
    rates = open_rates(where) if kind == "sqlite" else open_rates(".", where)

    def leave() -> None:
        time.sleep(rates.take("place", per_second))

    return leave


def ask(kind: str, where: str, per_second: float, seconds: float) -> None:
    """Ask for leave for so long and tell when it was given, and the CPU."""
    leave = leave_of(kind, where, per_second)
    leave()
    end, cpu = time.time() + seconds, time.process_time()
    times = []
    while time.time() < end:
        leave()
        times.append(time.time())
    print(json.dumps({"times": times, "cpu_s": time.process_time() - cpu}))


def measure(kind: str, where: str, per_second: float, seconds: float) -> tuple[list[float], float]:
    """Return when four processes were given leave, and the CPU seconds of asking."""
    command = [sys.executable, "-m", "benchmarks.rates", "--ask", kind, "--where", where]
    command += ["--rate", str(per_second), "--seconds", str(seconds)]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(N_PROCESSES)
    ]
    told = [json.loads(process.communicate()[0]) for process in processes]
    times = sorted(t for one in told for t in one["times"])
    return times, sum(one["cpu_s"] for one in told)


def row(kind: str, where: str, seconds: float, server: int | None) -> None:
    """Measure one kind and print its row."""
    before = 0.0 if server is None else cpu_of(server)
    times, cpu_s = measure(kind, where, FAST, seconds)
    of_server = 0.0 if server is None else cpu_of(server) - before
    # Only while all four ask: they do not begin at the same time.
    slow, _ = measure(kind, where, LIMIT, seconds)
    most = max(sum(t <= other < t + 1.0 for other in slow) for t in slow)
    spent = (cpu_s + of_server) / len(times) * 1e3
    span = times[-1] - times[0]
    print(f"| {kind} | {len(times) / span:,.0f} | {spent:.2f} | {most} |", flush=True)


def make_limits() -> None:
    """Make both limits on Prefect's server."""
    from prefect.client.orchestration import get_client  # noqa: PLC0415 - takes seconds
    from prefect.client.schemas.actions import (  # noqa: PLC0415 - as above
        GlobalConcurrencyLimitCreate,
    )

    with get_client(sync_client=True) as client:
        for name, limit, decay in (("slow", 1, LIMIT), ("fast", 1000, FAST)):
            wanted = GlobalConcurrencyLimitCreate(
                name=name, limit=limit, slot_decay_per_second=decay
            )
            client.request(
                "POST",
                "/v2/concurrency_limits/",
                json=wanted.model_dump(mode="json", exclude_unset=True),
            )


def main() -> None:
    """Measure each kind, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="+", default=["sqlite", "postgres", "prefect"])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--ask")
    parser.add_argument("--where", default="")
    parser.add_argument("--rate", type=float, default=LIMIT)
    options = parser.parse_args()
    if options.ask:
        ask(options.ask, options.where, options.rate, options.seconds)
        return
    print(f"{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| limit in | given a second | CPU ms each, server's included | most in a second, of 10 |"
    )
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for kind in options.kinds:
            if kind == "sqlite":
                row(kind, str(scratch), options.seconds, None)
            elif kind == "postgres":
                from tests.store.postgres_server import (  # noqa: PLC0415 - starts a server
                    postgres_server,
                )

                row(kind, postgres_server().new_schema(), options.seconds, None)
            else:
                with PrefectServer(scratch) as server:
                    os.environ.update(server.environment)
                    make_limits()
                    row(kind, server.api_url, options.seconds, server.pid)


if __name__ == "__main__":
    main()
