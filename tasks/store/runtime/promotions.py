"""Champions and gate looks in the runtime state."""

from collections import Counter

from convergence_core.records import fields_of
from convergence_core.space import same_params
from tasks.store.runtime.rows import Champion, GateLook
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.schema import CHAMPIONS, LOOKS


def save_look(store: RuntimeStore, look: GateLook) -> bool:
    """Store a look durably unless there is one at the same rewards; return whether it is new."""
    if look.run_id is not None and any(
        _is_same(look, earlier) for earlier in looks(store, look.system)
    ):
        return False
    with store.database.transaction() as connection:
        LOOKS.add(connection, look)
    return True


def looks_before(store: RuntimeStore, look: GateLook) -> Counter[str]:
    """Return the number of earlier looks at each held-out case, by the hash of the case."""
    n_looks: Counter[str] = Counter()
    for earlier in looks(store, look.system):
        if _is_same(look, earlier):
            break
        n_looks.update(str(earlier.details.get("cases", "")).split())
    return n_looks


def _is_same(look: GateLook, other: GateLook) -> bool:
    """Return whether both looks have the same evidence on the same pair, as after a resume."""

    def evidence(at: GateLook) -> tuple[object, ...]:
        pair = fields_of(at, "kind", "candidate_id", "champion_id")
        return pair, at.details.get("cases"), at.details.get("rewards", at.run_id)

    return evidence(look) == evidence(other)


def looks(store: RuntimeStore, system: str | None = None) -> list[GateLook]:
    """Return all looks or those at one system, oldest first."""
    return store.find(LOOKS, "ORDER BY seq", system=system)


def set_champion(store: RuntimeStore, champion: Champion) -> None:
    """Make a candidate the champion of its system, durably."""
    with store.database.transaction() as connection:
        CHAMPIONS.add(connection, champion)


def champions(store: RuntimeStore, system: str) -> list[Champion]:
    """Return all champions of a system in order; the last one is in production."""
    return store.find(CHAMPIONS, "ORDER BY seq", system=system)


def champion_runs(store: RuntimeStore) -> frozenset[str]:
    """Return the ids of all runs with a champion of any system."""
    rows = store.fetch("SELECT DISTINCT run_id FROM champions WHERE run_id IS NOT NULL")
    return frozenset(str(run_id) for (run_id,) in rows)


def champion_of(store: RuntimeStore, system: str) -> Champion | None:
    """Return the champion in production, ``None`` before the first promotion."""
    stored = champions(store, system)
    return stored[-1] if stored else None


def previous_champion(store: RuntimeStore, system: str) -> Champion | None:
    """Return the champion that a rollback restores, i.e. the one before the current.

    A rollback also creates a champion, so two rollbacks go back two steps.
    """
    line: list[Champion] = []
    for champion in champions(store, system):
        if line and champion.reason.startswith("rollback"):
            line.pop()
            # Champions of an unconfirmed ramp are skipped. If none is left, the defaults return.
            while line and not same_params(line[-1].params, champion.params):
                line.pop()
        else:
            line.append(champion)
    return line[-2] if len(line) > 1 else None
