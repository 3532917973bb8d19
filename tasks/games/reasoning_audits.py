"""Stored audits of reasoning-gym, and the games that they admit.

An audit's result depends on the installed version and on the audit's checks (``AUDIT_VERSION``).
So each generator is audited once for both; later reads come from table ``task_audits``.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convergence_core.config.games import REAL_TASK
from convergence_core.errors import ConfigurationError
from convergence_core.ports import Row
from tasks.games.reasoning_tasks import (
    AUDIT_VERSION,
    PACKAGE,
    ReasoningGame,
    ReasoningGymError,
    ReasoningLibrary,
    audit,
    check_names,
    generator_names,
    installed_version,
    why_missing,
)
from tasks.store.clock import wall_clock_us
from tasks.store.tables.learner_tables import TASK_AUDITS
from tasks.store.tables.parquet_store import ParquetStore

N_SEEDS: Final = 3
"""Default number of audited items per generator."""
_STORED: Final = """
    SELECT generator, reason, n_generators FROM task_audits
    WHERE package = $package AND version = $version AND audit = $audit
      AND (n_seeds >= $n_seeds OR NOT is_admitted)
    ORDER BY audited_at"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAudit:
    """Stored audits of the installed version's generators."""

    version: str
    audits: Mapping[str, str]
    """Generator → reason for its rejection, empty if it is admitted; sorted by name."""
    n_generators: int | None
    """Number of generators in the installed version; ``None`` if no audit of it is stored."""

    @property
    def is_whole(self) -> bool:
        """Whether every generator was audited."""
        return self.n_generators == len(self.audits)

    @property
    def admitted(self) -> tuple[str, ...]:
        """Names of the admitted generators."""
        return tuple(name for name, reason in self.audits.items() if not reason)

    @property
    def rejected(self) -> Mapping[str, str]:
        """Generator → reason for its rejection."""
        return {name: reason for name, reason in self.audits.items() if reason}


def stored_audit(path: Path, n_seeds: int = N_SEEDS) -> StoredAudit:
    """Return the stored audits of the installed version, the latest of each generator.

    Args:
        path: Root folder of the store; it need not exist.
        n_seeds: Minimum audited items of an admitted generator.

    Raises:
        ReasoningGymError: the package is missing.
    """
    version = installed_version()
    key = {"package": PACKAGE, "version": version, "audit": AUDIT_VERSION, "n_seeds": n_seeds}
    with closing(ParquetStore(path)) as store:
        rows = store.rows(_STORED, key) if store.exists else []
    stored = {row["generator"]: str(row["reason"] or "") for row in rows}
    n = rows[-1]["n_generators"] if rows else None
    return StoredAudit(version=version, audits=dict(sorted(stored.items())), n_generators=n)


def audited(
    path: Path,
    names: Sequence[str] | None = None,
    *,
    n_seeds: int = N_SEEDS,
    again: bool = False,
) -> Iterator[tuple[str, str]]:
    """Yield generators with their reasons as ``audit`` does; audit and store the unknown ones.

    Results are stored after the last audit, or earlier if the caller stops or fails.

    Args:
        path: Root folder of the store, created if an audit runs.
        names: Names of generators; empty or ``None`` means all.
        n_seeds: Items per generator, at least 1.
        again: Whether to repeat stored audits.

    Raises:
        ReasoningGymError: the package is missing, or a name is no generator's.
        StoreError: the store cannot be used.
    """
    stored = stored_audit(path, n_seeds)
    known = {} if again else dict(stored.audits)
    wanted = list(names or (() if again or not stored.is_whole else known))
    if not wanted or not {*wanted} <= known.keys():
        everything = generator_names()
        check_names(wanted, everything)
        wanted, n_generators = wanted or list(everything), len(everything)
        new = [name for name in wanted if name not in known]
        tried: dict[str, str] = {}
        try:
            for name, reason in audit(new, n_seeds=n_seeds) if new else ():
                tried[name] = reason
                yield name, reason
        finally:
            _save(path, tried, stored.version, n_seeds, n_generators)
        wanted = [name for name in wanted if name in known]
    yield from ((name, known[name]) for name in wanted)


def _save(
    path: Path, tried: Mapping[str, str], version: str, n_seeds: int, n_generators: int
) -> None:
    now = wall_clock_us()
    rows: list[Row] = [
        {
            "package": PACKAGE,
            "version": version,
            "audit": AUDIT_VERSION,
            "generator": generator,
            "n_seeds": n_seeds,
            "is_admitted": not reason,
            "reason": reason or None,
            "n_generators": n_generators,
            "audited_at": now,
        }
        for generator, reason in tried.items()
    ]
    with closing(ParquetStore(path)) as store:
        store.add_rows(TASK_AUDITS, rows, now)


def check_real_task(name: str) -> None:
    """Check that the package, if installed, has the generator of a game's id.

    Raises:
        ConfigurationError: it has no generator of that name.
    """
    if why_missing():
        return
    generator, known = name.removeprefix(REAL_TASK).replace("-", "_"), generator_names()
    if generator in known:
        return
    near = difflib.get_close_matches(generator, known, 1)
    fix = (
        f"Write `{REAL_TASK}{near[0].replace('_', '-')}`."
        if near
        else f"It has: {', '.join(known)}."
    )
    rule = f"must name a generator of {PACKAGE}, or its `file`"
    raise ConfigurationError.of(f"society.games.games.{name}", rule, fix, value=name)


class RealTasks:
    """Generators that a configuration plays by name, all in one process of the library.

    The process starts with the first item.

    Args:
        path: Root folder of the store of audits.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._library: ReasoningLibrary | None = None

    def game(self, name: str) -> tuple[ReasoningGame, str | None]:
        """Return a generator as a game, and why it is rejected; ``None`` if it is admitted.

        Args:
            name: Id of the game.

        Raises:
            ConfigurationError: the package is missing, or has no such generator.
            StoreError: the store cannot be used.
        """
        key = f"society.games.games.{name}"
        if why := why_missing():
            raise ConfigurationError.of(key, "needs a package", why)
        self._library = self._library or ReasoningLibrary()
        generator = name.removeprefix(REAL_TASK).replace("-", "_")
        try:
            ((_, reason),) = audited(self._path, [generator])
        except ReasoningGymError:
            check_real_task(name)
            raise
        off = f"the audit of {PACKAGE} {self._library.version} rejects it: {reason}"
        return ReasoningGame(self._library, generator), off if reason else None

    def close(self) -> None:
        """Kill the process; safe to call twice."""
        if self._library is not None:
            self._library.close()
