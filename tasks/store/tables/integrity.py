"""Integrity check: every visible file is read to its last page."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb

from tasks.store.layout import JOURNAL_FILE, PART_FILE, generation_file
from tasks.store.sqlite import integrity_problem
from tasks.store.tables.columns import Table
from tasks.store.tables.damage import in_memory
from tasks.store.tables.resolver import Resolution, resolve
from tasks.store.tables.tables import EVALUATIONS, GENERATIONS, TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One file that is torn, empty, foreign or missing."""

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
        if not found:
            found.extend(_missing_rows(connection, resolution))
    journal = root / JOURNAL_FILE
    reason = integrity_problem(journal) if journal.exists() else None
    if reason is not None:
        found.append(Damage(path=journal, table="journal", reason=reason))
    return found


def _problem(connection: duckdb.DuckDBPyConnection, table: Table, file: str) -> str | None:
    if not Path(file).stat().st_size:
        return "the file is empty"
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
    return f"{n_foreign} rows are not of run {run_id}" if n_foreign else None


def _missing_rows(
    connection: duckdb.DuckDBPyConnection, resolution: Resolution
) -> Iterator[Damage]:
    """Compare what each commit marker promises with the evaluations that are there."""
    markers = GENERATIONS.files_sql(resolution.files[GENERATIONS.name])
    evaluations = EVALUATIONS.files_sql(resolution.files[EVALUATIONS.name])
    rows = connection.execute(
        "SELECT g.run_id, g.generation, g.n_evaluations, count(e.eval_id) AS n "  # noqa: S608 - a registry's SQL
        f"FROM ({markers}) g LEFT JOIN ({evaluations}) e USING (run_id, generation) "
        "GROUP BY ALL HAVING n <> n_evaluations ORDER BY ALL"
    ).fetchall()
    for run_id, generation, promised, n in rows:
        names = (f"run_id={run_id}/{generation_file(generation)}", f"run_id={run_id}/{PART_FILE}")
        marker = next(f for f in resolution.files[GENERATIONS.name] if f.endswith(names))
        yield Damage(
            path=Path(marker),
            table=EVALUATIONS.name,
            reason=f"generation {generation} has {promised} evaluations, but {n} are there: "
            "a file was deleted or replaced",
        )
