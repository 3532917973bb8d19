"""Champions and looks of gates, in the runtime state."""

import json
from collections.abc import Sequence
from typing import Any

from convergence_core.records import canonical_json
from tasks.store.runtime.rows import Champion, GateLook
from tasks.store.runtime.runtime_store import RuntimeStore

_LOOK = (
    "SELECT system, kind, candidate_id, champion_id, run_id, decision, n, log_e, log_threshold, "
    "details_json, created_us FROM looks"
)
_CHAMPIONS = (
    "SELECT system, candidate_id, params_json, run_id, reason, created_us FROM champions "
    "WHERE system = ? ORDER BY seq"
)


def save_look(store: RuntimeStore, look: GateLook) -> bool:
    """Store a look durably; a run's look is stored once. Return whether it was new."""
    with store.database.transaction() as connection:
        if look.run_id is not None:
            found = connection.execute(
                "SELECT 1 FROM looks WHERE run_id = ? AND kind = ?", (look.run_id, look.kind)
            ).fetchone()
            if found is not None:
                return False
        connection.execute(
            "INSERT INTO looks(system, kind, candidate_id, champion_id, run_id, decision, n, "
            "log_e, log_threshold, details_json, created_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                look.system,
                look.kind,
                look.candidate_id,
                look.champion_id,
                look.run_id,
                look.decision,
                look.n,
                look.log_e,
                look.log_threshold,
                canonical_json(dict(look.details)),
                look.created_us,
            ),
        )
    return True


def looks(store: RuntimeStore, system: str | None = None) -> list[GateLook]:
    """Return all looks, or those at one system, oldest first."""
    where, values = ("", ()) if system is None else (" WHERE system = ?", (system,))
    with store.database.reading() as connection:
        rows: Any = connection.execute(f"{_LOOK}{where} ORDER BY seq", values).fetchall()
    return [
        GateLook(
            system=row[0],
            kind=row[1],
            candidate_id=row[2],
            champion_id=row[3],
            run_id=row[4],
            decision=row[5],
            n=row[6],
            log_e=row[7],
            log_threshold=row[8],
            details=json.loads(row[9]),
            created_us=row[10],
        )
        for row in rows
    ]


def set_champion(store: RuntimeStore, champion: Champion) -> None:
    """Make a candidate the champion of its system, durably."""
    with store.database.transaction() as connection:
        connection.execute(
            "INSERT INTO champions(system, candidate_id, params_json, run_id, reason, created_us) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                champion.system,
                champion.candidate_id,
                canonical_json(dict(champion.params)),
                champion.run_id,
                champion.reason,
                champion.created_us,
            ),
        )


def is_champion(store: RuntimeStore, system: str) -> Sequence[Champion]:
    """Return every champion that a system had, in order; the last one reigns."""
    with store.database.reading() as connection:
        rows: Any = connection.execute(_CHAMPIONS, (system,)).fetchall()
    return [
        Champion(
            system=row[0],
            candidate_id=row[1],
            params=json.loads(row[2]),
            run_id=row[3],
            reason=row[4],
            created_us=row[5],
        )
        for row in rows
    ]


def champion_runs(store: RuntimeStore) -> frozenset[str]:
    """Return the ids of all runs that a champion of any system came from."""
    with store.database.reading() as connection:
        rows: Any = connection.execute("SELECT DISTINCT run_id FROM champions").fetchall()
    return frozenset(str(row[0]) for row in rows if row[0] is not None)


def champion_of(store: RuntimeStore, system: str) -> Champion | None:
    """Return who reigns, ``None`` before the first promotion."""
    found = is_champion(store, system)
    return found[-1] if found else None


def before(store: RuntimeStore, system: str) -> Champion | None:
    """Return whom a rollback brings back: the champion before the one that reigns.

    A rollback is a reign of its own, so going back twice goes back two steps.
    """
    line: list[Champion] = []
    for reign in is_champion(store, system):
        if len(line) > 1 and reign.reason.startswith("rollback"):
            line.pop()
        else:
            line.append(reign)
    return line[-2] if len(line) > 1 else None
