"""Durable select and update of several processes beside the naive SQLite recipe, in one run.

    python -m benchmarks.durable [--processes 8] [--seconds 5] [--rounds 2] [--busy 8] [--sync-ms 2]

*Naive*: WAL with ``synchronous=FULL`` and SQLite's own waiting, one transaction to log a decision and one
to take a reward. *Recipe*: the same statements by the store's way to commit, a fair lock and a sync outside
it, and nothing else of the product. *Ours*: a ``Bandit`` for each process on one store. Ten arms; every pair
is durable.

A round takes the recipes in turn, so its ratio is of one stretch of time; the ratio depends on what else the
machine does, and is told as the least and the most of the rounds. ``--busy`` starts so many processes
beside that only count.

``--sync-ms`` makes every sync take so much longer, by sleeping: what the recipes do on a disk that is slower
to sync than the machine's own.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import numpy as np

from benchmarks.machine import describe_machine
from tasks.serving.bandit import Bandit
from tasks.serving.offers import decision_id, offer_of
from tasks.store.database import Schema
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.sqlite import SqliteDatabase

if TYPE_CHECKING:
    from _typeshed import HasFileno

N_ARMS = 10
FILE = "bare.sqlite"
_NAIVE = """
CREATE TABLE IF NOT EXISTS arms(arm_id TEXT PRIMARY KEY, alpha REAL, beta REAL, n INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions(seq INTEGER PRIMARY KEY, decision_id TEXT UNIQUE, arm_id TEXT,
  user_id TEXT, created_us INT);
CREATE TABLE IF NOT EXISTS rewards(seq INTEGER PRIMARY KEY, decision_id TEXT UNIQUE, reward REAL);
"""


class SlowSync(apsw.VFSFile):
    """A file of SQLite's own whose syncs take longer."""

    seconds = 0.0

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        """Sync, later."""
        time.sleep(self.seconds)
        super().xSync(flags)


class SlowDisk(apsw.VFS):
    """SQLite's way to files, on which syncs take longer."""

    name = "slow-disk"

    def __init__(self) -> None:
        """Register beside the one that is inherited from."""
        super().__init__(self.name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> SlowSync:  # noqa: N802
        """Open a file."""
        return SlowSync("", name, flags)


@contextlib.contextmanager
def slowed(seconds: float) -> Iterator[None]:
    """Make all syncs of this process take so much longer: SQLite's own, and ours."""
    if not seconds:
        yield
        return
    sync, SlowSync.seconds = os.fsync, seconds

    def slow(fd: "int | HasFileno") -> None:
        time.sleep(seconds)
        sync(fd)

    os.fsync = slow
    disk = SlowDisk()
    try:
        yield
    finally:
        os.fsync = sync
        disk.unregister()


def naive(folder: Path, number: int) -> Callable[[], None]:
    """Return one pair by the naive recipe."""
    connection = apsw.Connection(
        str(folder / FILE), vfs=SlowDisk.name if SlowSync.seconds else None
    )
    connection.set_busy_timeout(60_000)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    rng = np.random.default_rng(number)

    @contextlib.contextmanager
    def transaction() -> Iterator[apsw.Connection]:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")

    return lambda: _bare_pair(transaction, rng)


def recipe(folder: Path, number: int) -> Callable[[], None]:
    """Return one pair of the same statements, committed as the store commits."""
    nothing = Schema(noun="file", version=1, upgrade=lambda _: "", loss="all")
    database = SqliteDatabase(folder / FILE, nothing)
    rng = np.random.default_rng(number)
    return lambda: _bare_pair(database.transaction, rng)


def _bare_pair(
    transaction: Callable[[], AbstractContextManager[apsw.Connection]], rng: np.random.Generator
) -> None:
    with_id = decision_id(time.time_ns() // 1_000)
    with transaction() as connection:
        arms = connection.execute("SELECT arm_id, alpha, beta FROM arms").fetchall()
        draws = rng.beta([a for _, a, _ in arms], [b for _, _, b in arms])  # type: ignore[arg-type]
        arm = arms[int(draws.argmax())][0]
        connection.execute(
            "INSERT INTO decisions(decision_id, arm_id, user_id, created_us) VALUES (?, ?, 'u', 0)",
            (with_id, arm),
        )
    with transaction() as connection:
        connection.execute(
            "INSERT INTO rewards(decision_id, reward) VALUES (?, 1.0) ON CONFLICT DO NOTHING",
            (with_id,),
        )
        connection.execute("UPDATE arms SET alpha = alpha + 1, n = n + 1 WHERE arm_id = ?", (arm,))


def ours(folder: Path, number: int) -> Callable[[], None]:
    """Return one pair by the product."""
    bandit = Bandit(RuntimeStore(folder), "bot", seed=number)
    return lambda: _paired(bandit)


def _paired(bandit: Bandit) -> None:
    bandit.update(bandit.select("u").decision_id, 1.0)


KINDS = {"naive": naive, "recipe": recipe, "ours": ours}


def child(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Pair for so long; print the milliseconds that each pair took."""
    pair = KINDS[kind](folder, number)
    pair()
    print("ready", flush=True)
    sys.stdin.readline()
    end, times = time.perf_counter() + seconds, []
    while (begun := time.perf_counter()) < end:
        pair()
        times.append((time.perf_counter() - begun) * 1e3)
    print(" ".join(f"{one:.3f}" for one in times), flush=True)


def measured(
    kind: str, n_processes: int, seconds: float, sync_ms: float
) -> tuple[float, float, float]:
    """Return pairs a second, p99 and the longest pair in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        if kind != "ours":
            connection = apsw.Connection(str(Path(folder) / FILE))
            connection.pragma("journal_mode", "wal")
            connection.execute(_NAIVE)
            for number in range(N_ARMS):
                connection.execute("INSERT INTO arms VALUES (?, 1, 1, 0)", (f"arm-{number}",))
            connection.close()
        else:
            with RuntimeStore(folder) as store:
                offers = [offer_of({"n": number}, f"arm-{number}") for number in range(N_ARMS)]
                store.offer("bot", "default", offers, trust=0.5)
        command = [sys.executable, "-m", "benchmarks.durable", "--child", kind, folder]
        children = [
            subprocess.Popen(
                [*command, str(number), "--seconds", str(seconds), "--sync-ms", str(sync_ms)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number in range(n_processes)
        ]  # fmt: skip
        for one in children:
            assert one.stdout is not None
            one.stdout.readline()
        for one in children:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        times = sorted(float(t) for one in children for t in one.communicate()[0].split())
    return len(times) / seconds, times[int(0.99 * len(times))], times[-1]


@contextlib.contextmanager
def busy(n_processes: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Keep so many processes counting."""
    counting = [
        subprocess.Popen([sys.executable, "-c", "while True: sum(range(10_000))"])
        for _ in range(n_processes)
    ]
    try:
        yield counting
    finally:
        for one in counting:
            one.kill()
            one.wait()


def ratio(rates: Mapping[str, Sequence[float]], kind: str) -> str:
    """Return how many times the naive pairs of the same round a recipe does, least and most."""
    found = [one / bare for one, bare in zip(rates[kind], rates["naive"], strict=True)]
    return f"{min(found):.2f} to {max(found):.2f}"


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description="Durable pairs of several processes.")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the machine busy")
    parser.add_argument("--sync-ms", type=float, default=0.0, help="added to each sync")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, folder, number = options.child
        with slowed(options.sync_ms / 1e3):
            child(kind, Path(folder), int(number), options.seconds)
        return
    print(describe_machine())
    rates: dict[str, list[float]] = {}
    print("| recipe | pairs/s | p99, ms | longest, ms |\n|---|---|---|---|")
    with busy(options.busy):
        for _ in range(options.rounds):
            for kind in KINDS:
                rate, p99, most = measured(
                    kind, options.processes, options.seconds, options.sync_ms
                )
                rates.setdefault(kind, []).append(rate)
                print(f"| {kind} | {rate:,.0f} | {p99:.1f} | {most:,.0f} |", flush=True)
    print(
        f"\n{options.rounds} rounds: ours does {ratio(rates, 'ours')} times the pairs of the naive recipe; the way "
        f"to commit alone, without what the product does beside, {ratio(rates, 'recipe')} times."
    )


if __name__ == "__main__":
    main()
