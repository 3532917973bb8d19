"""``catalog.duckdb``: the views as a file, for the ``duckdb`` shell. Disposable."""

from pathlib import Path

from convergence_core.store.columns import quoted
from convergence_core.store.damage import OFFLINE, damaged_error
from convergence_core.store.layout import (
    CATALOG_FILE,
    publish_file,
    temporary_name,
    write_error,
    writing,
)
from convergence_core.store.resolver import resolve
from convergence_core.store.views import view_statements


def write_catalog(root: Path) -> Path:
    """Write the views of the store as it is now and return the file's path.

    The file is renamed in, so whoever holds the old one open keeps it; it can be read by every
    DuckDB from 1.0 on. Its paths are absolute.

    Raises:
        StoreDamagedError: a file went at this very moment.
        StoreWriteError: the catalog cannot be written.
    """
    import duckdb  # noqa: PLC0415 - heavy, and not needed to import the protocols

    path = root / CATALOG_FILE
    temporary = temporary_name(path)
    resolution = resolve(root)
    with writing(path):
        try:
            with duckdb.connect(":memory:", config={**OFFLINE, "threads": 1}) as connection:
                connection.execute(
                    f"ATTACH {quoted(str(temporary))} AS catalog (STORAGE_VERSION 'v1.0.0')"
                )
                connection.execute("USE catalog")
                for statement in view_statements(resolution.files).values():
                    connection.execute(statement)
                connection.execute("USE memory")
                connection.execute("DETACH catalog")
            publish_file(temporary, path)
        except duckdb.Error as error:
            sources = [file for files in resolution.files.values() for file in files]
            raise (damaged_error(sources) or write_error(path, str(error))) from error
        finally:
            temporary.unlink(missing_ok=True)
            temporary.with_name(temporary.name + ".wal").unlink(missing_ok=True)
    return path
