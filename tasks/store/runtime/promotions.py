"""Champions and looks of gates in the runtime state."""

from collections import Counter

from convergence_core.space import same_params
from tasks.store.runtime.rows import Champion, GateLook
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.schema import CHAMPIONS, LOOKS


def save_look(store: RuntimeStore, look: GateLook) -> bool:
    """Store a look durably; a run's look at the same cases is stored once. Return whether it was new."""
    if look.run_id is not None and any(
        _is_same(look, earlier) for earlier in looks(store, look.system)
    ):
        return False
    with store.database.transaction() as connection:
        LOOKS.add(connection, look)
    return True


def looks_before(store: RuntimeStore, look: GateLook) -> Counter[str]:
    """Return how many looks at held-out cases came before, by the marks of the cases."""
    n_looks: Counter[str] = Counter()
    for earlier in looks(store, look.system):
        if _is_same(look, earlier):
            break
        n_looks.update(str(earlier.details.get("cases", "")).split())
    return n_looks


def _is_same(look: GateLook, other: GateLook) -> bool:
    """Whether both are a run's look at the same two candidates on the same cases, as after a resume."""
    return (look.run_id, look.kind, look.candidate_id, look.champion_id) == (
        other.run_id,
        other.kind,
        other.candidate_id,
        other.champion_id,
    ) and look.details.get("cases") == other.details.get("cases")


def looks(store: RuntimeStore, system: str | None = None) -> list[GateLook]:
    """Return all looks, or those at one system, oldest first."""
    return store.find(LOOKS, "ORDER BY seq", system=system)


def set_champion(store: RuntimeStore, champion: Champion) -> None:
    """Make a candidate the champion of its system, durably."""
    with store.database.transaction() as connection:
        CHAMPIONS.add(connection, champion)


def champions(store: RuntimeStore, system: str) -> list[Champion]:
    """Return every champion that a system had, in order; the last one is in production."""
    return store.find(CHAMPIONS, "ORDER BY seq", system=system)


def champion_runs(store: RuntimeStore) -> frozenset[str]:
    """Return the ids of all runs that a champion of any system came from."""
    rows = store.fetch("SELECT DISTINCT run_id FROM champions WHERE run_id IS NOT NULL")
    return frozenset(str(run_id) for (run_id,) in rows)


def champion_of(store: RuntimeStore, system: str) -> Champion | None:
    """Return the champion in production, ``None`` before the first promotion."""
    stored = champions(store, system)
    return stored[-1] if stored else None


def previous_champion(store: RuntimeStore, system: str) -> Champion | None:
    """Return the champion that a rollback brings back: the one before that in production.

    A rollback makes a champion too, so going back twice goes back two steps.
    """
    line: list[Champion] = []
    for champion in champions(store, system):
        if line and champion.reason.startswith("rollback"):
            line.pop()
            # Others were promoted during a ramp, and never confirmed; none left: to the defaults.
            while line and not same_params(line[-1].params, champion.params):
                line.pop()
        else:
            line.append(champion)
    return line[-2] if len(line) > 1 else None
