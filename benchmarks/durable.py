"""Durable select and update in several processes, against a naive SQLite recipe.

    python -m benchmarks.durable --seconds 5 --rounds 3

*Naive*: WAL with ``synchronous=FULL`` and SQLite's own waiting, one transaction to log a decision and one
to log a reward. *Recipe*: the same statements committed as the store does, with a fair lock and a sync
outside it, and nothing else of the product. *Ours*: one ``Bandit`` per process on one store. There are ten
arms, and every pair is durable.
"""

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import apsw
import numpy as np

from benchmarks.machine import describe_machine, options
from benchmarks.tables import header, row
from tasks.serving.bandit import ArmRequest, ArmSelection, Bandit
from tasks.serving.offers import decision_id, offer_of
from tasks.serving.operations import RewardUpdate, performed
from tasks.store.database import Schema
from tasks.store.runtime.rows import Reward
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.sqlite import SqliteDatabase

N_ARMS, N_PROCESSES = 10, 8
FILE = "bare.sqlite"
_NAIVE = """
CREATE TABLE IF NOT EXISTS arms(arm_id TEXT PRIMARY KEY, alpha REAL, beta REAL, n INT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS decisions(seq INTEGER PRIMARY KEY, decision_id TEXT UNIQUE, arm_id TEXT,
  user_id TEXT, created_us INT);
CREATE TABLE IF NOT EXISTS rewards(seq INTEGER PRIMARY KEY, decision_id TEXT UNIQUE, reward REAL);
"""


def naive(folder: Path, number: int) -> Callable[[], None]:
    """Return a function that makes one pair by the naive recipe."""
    connection = apsw.Connection(str(folder / FILE))
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
    """Return a function that makes one pair with the same statements, committed as the store does."""
    database = SqliteDatabase(folder / FILE, Schema(noun="file", version=1, tables=(), loss="all"))
    return partial(_bare_pair, database.transaction, np.random.default_rng(number))


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
    """Return a function that makes one pair with the product."""
    bandit = Bandit(RuntimeStore(folder), "bot", seed=number)
    return partial(_paired, bandit)


def _paired(bandit: Bandit) -> None:
    chosen = performed(bandit.store, ArmSelection(lambda: bandit, ArmRequest(user_id="u")))
    given = Reward(decision_id=chosen.decision_id, reward=1.0)
    performed(bandit.store, RewardUpdate(bandit.store, bandit.system, given))


KINDS = {"naive": naive, "recipe": recipe, "ours": ours}


def child(kind: str, folder: Path, number: int, seconds: float) -> None:
    """Make pairs for a duration; print the milliseconds of each."""
    pair = KINDS[kind](folder, number)
    pair()
    print("ready", flush=True)
    sys.stdin.readline()
    end, times = time.perf_counter() + seconds, []
    while (begun := time.perf_counter()) < end:
        pair()
        times.append((time.perf_counter() - begun) * 1e3)
    print(" ".join(f"{one:.3f}" for one in times), flush=True)


def measured(kind: str, seconds: float) -> tuple[float, float, float]:
    """Return pairs per second, and the p99 and longest pair in milliseconds."""
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
        command = [sys.executable, "-m", "benchmarks.durable", kind, folder]
        children = [
            subprocess.Popen(
                [*command, str(number), str(seconds)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for number in range(N_PROCESSES)
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


def main() -> None:
    """Run the recipes in turn and print medians over rounds."""
    args = options(__doc__, seconds=5.0, rounds=3)
    print(describe_machine())
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(args.rounds):
        for kind, rounds in found.items():
            rounds.append(measured(kind, args.seconds))
    print(header("recipe", "pairs/s", "p99, ms", "longest, ms"))
    for kind, rounds in found.items():
        rate, p99, most = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(row(kind, f"{rate:,.0f}", f"{p99:.1f}", f"{most:,.0f}"))


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in KINDS:
        child(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
