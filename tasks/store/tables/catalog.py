"""Catalog: the views as a disposable file for the ``duckdb`` shell.

Its views name no file. They look for the store's files when they are read, and apply the rules of
``tasks.store.tables.resolver``: so the catalog shows what is committed, also after a kill at any
moment, and is never behind ``convergence query``. A read at the very moment at which a run ends may
miss that run; the next one has it.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Final

import duckdb

from tasks.store.layout import (
    CATALOG_FILE,
    CATALOG_FOLDER,
    FOLDER_MODE,
    PART_FILE,
    make_folder,
    publish_file,
    temporary_name,
    whole_file,
    write_error,
    write_file,
    writing,
)
from tasks.store.tables.columns import Table, quoted
from tasks.store.tables.damage import in_memory
from tasks.store.tables.tables import GENERATIONS, RUNS, RUNTIME_TABLES, TABLES
from tasks.store.tables.views import views_over

_RUN: Final = "'/run_id=([^/]+)/[^/]+$'"
"""Expression of the run in a path."""
_STAMP: Final = "views.sha256"
"""File that says which views were written last."""
_EMPTY: Final = "none"
"""Folder and file of tables without rows: DuckDB refuses a pattern that fits no file. Columns are read
by their field ids, so that one file fits every table."""


def renew_catalog(root: Path) -> None:
    """Write the catalog if it is not there, or if another version or another folder wrote it.

    Raises:
        StoreWriteError: the catalog cannot be written.
    """
    try:
        written = (root / CATALOG_FOLDER / _STAMP).read_text("utf-8")
    except OSError:
        written = ""
    if written != _stamp(root) or not (root / CATALOG_FILE).exists():
        write_catalog(root)


def write_catalog(root: Path) -> Path:
    """Write the views over the store's folder and return the file's path.

    The file is renamed in, so a process that holds the old one open keeps it; it can be read by every
    DuckDB from 1.5 on. Its paths are absolute.

    Raises:
        StoreWriteError: the catalog cannot be written.
    """
    path = root / CATALOG_FILE
    temporary = temporary_name(path)
    with writing(path):
        try:
            _write_empty_tables(root)
            with in_memory() as connection:
                connection.execute(
                    f"ATTACH {quoted(str(temporary))} AS catalog (STORAGE_VERSION 'v1.0.0')"
                )
                connection.execute("USE catalog")
                for statement in _statements(root):
                    connection.execute(statement)
                connection.execute("USE memory")
                connection.execute("DETACH catalog")
            publish_file(temporary, path)
            write_file(root / CATALOG_FOLDER / _STAMP, _stamp(root))
        except duckdb.Error as error:
            raise write_error(path, str(error)) from error
        finally:
            temporary.unlink(missing_ok=True)
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
    return path


def _statements(root: Path) -> list[str]:
    tables = {name: committed_sql(root, table) for name, table in TABLES.items()}
    return list(views_over(tables).values())


def _stamp(root: Path) -> str:
    return hashlib.sha256("\n".join(_statements(root)).encode()).hexdigest()


def committed_sql(root: Path, table: Table) -> str:
    """Return a SELECT of a table's rows that are visible when it is run.

    Of a finished run its files in ``final``, of any other its live files that have a commit marker.
    """
    pattern = quoted(f"{root}/*/{table.name}/*/*.parquet")
    files_sql = (
        f"SELECT * FROM read_parquet({pattern}, schema={table.schema_sql()}, filename=true, "  # noqa: S608 - a registry's SQL
        "hive_partitioning=false)"
    )
    if table.name in {table_name.name for table_name in RUNTIME_TABLES}:
        return f"SELECT * EXCLUDE (filename) FROM ({files_sql})"  # noqa: S608 - as above
    finished = (
        f"SELECT regexp_extract(file, {_RUN}, 1) "  # noqa: S608 - as above
        f"FROM glob({quoted(f'{root}/final/{RUNS.name}/*/{PART_FILE}')})"
    )
    is_final = f"regexp_extract(filename, {_RUN}, 1) IN ({finished})"
    live, final = (quoted(f"{root}/{stage}/") for stage in ("live", "final"))
    is_committed = "true"
    if table is not RUNS:
        markers, own_files = (f"{root}/live/{name}/" for name in (GENERATIONS.name, table.name))
        is_committed = (
            f"filename IN (SELECT replace(file, {quoted(markers)}, {quoted(own_files)}) "  # noqa: S608 - as above
            f"FROM glob({quoted(markers + '*/*.parquet')}))"
        )
    return (
        f"SELECT * EXCLUDE (filename) FROM ({files_sql}) "  # noqa: S608 - as above
        f"WHERE (starts_with(filename, {final}) AND ({is_final} OR contains(filename, '/day='))) "
        f"OR (starts_with(filename, {live}) AND NOT {is_final} AND {is_committed})"
    )


def _write_empty_tables(root: Path) -> None:
    """Give each table a file without rows: one Parquet file under many names."""
    empty = root / CATALOG_FOLDER / f"{_EMPTY}.parquet"
    make_folder(empty.parent)
    with whole_file(empty) as temporary, in_memory() as connection:
        connection.execute(
            f"COPY (SELECT 0 AS field WHERE false) TO {quoted(str(temporary))} "
            "(FORMAT parquet, USE_TMP_FILE false, FIELD_IDS {field: 0})"
        )
    for name in TABLES:
        path = empty.parent / name / _EMPTY / empty.name
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if not path.exists():
            try:
                path.hardlink_to(empty)
            except OSError:  # a file system without links
                shutil.copyfile(empty, path)
