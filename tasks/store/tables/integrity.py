"""Integrity check of every visible file.

Digests find any changed bit. Ranges and sums find some in the files of older versions, which carry none.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb

from tasks.store.journal.sqlite_journal import journal_damage
from tasks.store.layout import JOURNAL_FILE, PART_FILE, generation_file
from tasks.store.tables.columns import Table
from tasks.store.tables.damage import (
    FLIPPED,
    committed,
    digest_in,
    in_memory,
    is_flipped,
    missing_files,
)
from tasks.store.tables.resolver import Resolution, resolve
from tasks.store.tables.tables import EVALUATIONS, GENERATIONS, RUNS, TABLES

_RANGES: Final[Mapping[str, str]] = {"[0, 1]": "BETWEEN 0 AND 1", "USD": "BETWEEN 0 AND 1e12"}
"""Unit of a column → what its numbers must be."""
_SUMS: Final = ("evaluations", "USD of evaluations", "mean reward")


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One file that is torn, changed, empty, foreign or missing."""

    path: Path
    table: str
    """Table it belongs to; ``journal`` for the journal."""
    reason: str


def check_store(root: Path) -> list[Damage]:
    """Return what is wrong with the store; nothing if all is well."""
    resolution = resolve(root)
    found = []
    with in_memory() as connection:
        for table in TABLES.values():
            for file in resolution.files[table.name]:
                reason = _problem(connection, table, file)
                if reason is not None:
                    found.append(Damage(path=Path(file), table=table.name, reason=reason))
        named = {one.path for one in found}
        found.extend(one for one in _not_as_committed(resolution) if one.path not in named)
        if not found:
            found.extend(_wrong_sums(connection, resolution))
    journal = root / JOURNAL_FILE
    reason = journal_damage(journal) if journal.exists() else None
    if reason is not None:
        found.append(Damage(path=journal, table="journal", reason=reason))
    return found


def _problem(connection: duckdb.DuckDBPyConnection, table: Table, file: str) -> str | None:
    if not Path(file).stat().st_size:
        return "the file is empty"
    if is_flipped(file):
        return FLIPPED
    run_id = Path(file).parent.name.removeprefix("run_id=")
    try:
        kinds = connection.execute(
            "SELECT decode(value) FROM parquet_kv_metadata($file) "
            "WHERE decode(key) = 'convergence_table'",
            {"file": file},
        ).fetchall()
        if kinds != [(table.name,)]:
            return f"the file does not say that it belongs to table {table.name}"
        _, n_foreign = connection.execute(
            f"SELECT bit_xor(hash(t)), count(*) FILTER (WHERE run_id IS DISTINCT FROM $run) "  # noqa: S608 - a registry's SQL
            f"FROM ({table.files_sql([file])}) t",
            {"run": run_id},
        ).fetchall()[0]
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    if n_foreign:
        return f"{n_foreign} rows are not of run {run_id}"
    return _out_of_range(connection, table, file)


def _out_of_range(connection: duckdb.DuckDBPyConnection, table: Table, file: str) -> str | None:
    """Return the first column whose numbers cannot be; ``None``: none."""
    limits = {
        c.name: _RANGES[c.unit] for c in table.columns if c.unit in _RANGES and c.type != "map"
    }
    if not limits:
        return None
    counts = ", ".join(f'count(*) FILTER (WHERE NOT ("{n}" {limits[n]}))' for n in limits)
    sql = f"SELECT {counts} FROM ({table.files_sql([file])})"  # noqa: S608 - a registry's SQL
    for (name, limit), n_wrong in zip(
        limits.items(), connection.execute(sql).fetchall()[0], strict=True
    ):
        if n_wrong:
            return f"{name} of {n_wrong} rows is not {limit}"
    return None


def n_without_digest(root: Path) -> int:
    """Return how many visible files carry no digest: an older version wrote them."""
    files = (file for table in resolve(root).files.values() for file in table)
    return sum(digest_in(file) is None for file in files)


def _not_as_committed(resolution: Resolution) -> Iterator[Damage]:
    """Compare the files with those that the commit markers name."""
    for marker in (*resolution.files[RUNS.name], *resolution.files[GENERATIONS.name]):
        path = Path(marker)
        for table, digest in committed(marker):
            file = path.parents[2] / table / path.parent.name / path.name
            if file.exists() and digest_in(file) != digest:
                reason = f"{path} committed another file"
                yield Damage(path=file, table=table, reason=reason)
    for name, reason in missing_files(resolution.files, TABLES):
        yield Damage(path=Path(name), table=Path(name).parents[1].name, reason=reason)


def _wrong_sums(connection: duckdb.DuckDBPyConnection, resolution: Resolution) -> Iterator[Damage]:
    """Compare what each commit marker promises with the evaluations that are there."""
    markers = GENERATIONS.files_sql(resolution.files[GENERATIONS.name])
    evaluations = EVALUATIONS.files_sql(resolution.files[EVALUATIONS.name])
    rows = connection.execute(
        f"WITH e AS ({evaluations}), "  # noqa: S608 - a registry's SQL
        "m AS (SELECT run_id, generation, avg(reward) AS mean FROM (SELECT run_id, generation, "
        "candidate_id, avg(reward) AS reward FROM e GROUP BY ALL) GROUP BY ALL), "
        "s AS (SELECT run_id, generation, count(*) AS n, sum(cost_usd) AS usd FROM e GROUP BY ALL) "
        "SELECT g.run_id, g.generation, n_evaluations, coalesce(n, 0), cost_usd, usd, "
        f"raw_mean_reward, mean FROM ({markers}) g LEFT JOIN s USING (run_id, generation) "
        "LEFT JOIN m USING (run_id, generation) ORDER BY ALL"
    ).fetchall()
    for run_id, generation, *pairs in rows:
        names = (f"run_id={run_id}/{generation_file(generation)}", f"run_id={run_id}/{PART_FILE}")
        marker = next(f for f in resolution.files[GENERATIONS.name] if f.endswith(names))
        for what, promised, there in zip(_SUMS, pairs[::2], pairs[1::2], strict=True):
            if _differ(promised, there):
                reason = (
                    f"generation {generation} has {promised} {what}, but {there} are there: "
                    "a file was deleted, replaced or changed"
                )
                yield Damage(path=Path(marker), table=EVALUATIONS.name, reason=reason)


def _differ(promised: float | None, there: float | None) -> bool:
    if promised is None or there is None:
        return promised is not there
    return not math.isclose(promised, there, rel_tol=1e-9, abs_tol=1e-12)
