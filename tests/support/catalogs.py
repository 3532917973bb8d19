"""What ``catalog.duckdb`` shows, held against what a query reads."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

import duckdb

from tasks.store.tables.parquet_store import ParquetStore

FEW: Final = ("runs", "generations", "candidates", "evaluations", "attempts", "leaderboard")


def check_catalog(root: Path, views: Collection[str] = FEW) -> int:
    """Make sure that views of the catalog and of a query agree; return how many evaluations."""
    store = ParquetStore(root)
    with duckdb.connect(str(root / "catalog.duckdb"), read_only=True) as catalog:
        catalog.execute("SET TimeZone = 'UTC'")
        for name in views:
            sql = f"SELECT * FROM {name} ORDER BY ALL"  # noqa: S608 - a name of the registry
            found = catalog.execute(sql)
            columns = tuple(column[0] for column in found.description or [])
            expected = store.query(sql)
            assert columns == expected.columns, name
            rows = found.fetchall()
            assert as_told(rows) == as_told(expected.rows), name
    (row,) = store.rows("SELECT count(*) AS n FROM evaluations")
    store.close()
    return int(str(row["n"]))


def as_told(value: Any) -> Any:
    """Return a value without a sum's last digits, which depend on the order of what was added."""
    match value:
        case float():
            return float(f"{value:.9g}")
        case list() | tuple():
            return [as_told(one) for one in value]
        case dict():
            return {key: as_told(one) for key, one in value.items()}
        case _:
            return value
