"""Limited child process that answers one SELECT.

DuckDB neither counts nor interrupts a call of ``repeat`` or ``levenshtein``. The kernel therefore
limits memory and CPU, and the process that serves the pages kills this one at its time limit. It
reads the request as JSON after it has written ``ready``, and writes the rows or an error message.
"""

import json
import math
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import duckdb

from convergence_core.errors import ConvergenceError
from convergence_core.records import Json
from tasks.store.tables.query import check_reads_only, open_views
from tasks.store.tables.resolver import resolve
from tasks.store.tables.views import views_for

MEMORY: Final = "200MB"
_OVERHEAD_BYTES: Final = 400 << 20
"""Bytes for memory that DuckDB does not count, e.g. the values of one call, and the answer."""
_CPU_S: Final = 60
_MOST_CHARS: Final = 32_000_000
"""Maximum total characters of an answer's strings."""


def answer(root: str, sql: str, most: int) -> dict[str, Any]:
    """Return columns and the first rows of one SELECT, or ``{"error": message}``."""
    try:
        connection = open_views(Path(root), resolve(Path(root)), views_for(sql), memory=MEMORY)
        _limit()
        check_reads_only(connection, sql, None)
        cursor = connection.execute(sql)
        columns = [
            {"name": str(name), "type": str(kind)} for name, kind, *_ in cursor.description or ()
        ]
        rows: list[list[Json]] = []
        n_chars = 0
        while len(rows) < most and (batch := cursor.fetchmany(min(1_000, most - len(rows)))):
            for row in batch:
                rows.append([_value(value) for value in row])
                n_chars += sum(len(value) for value in rows[-1] if isinstance(value, str))
            if n_chars > _MOST_CHARS:
                return {
                    "error": f"a result must have at most {_MOST_CHARS:,} characters. Query less."
                }
    except (duckdb.OutOfMemoryException, MemoryError):
        return {"error": f"a query must use at most {MEMORY} of memory. Query less."}
    except (duckdb.Error, ConvergenceError) as error:
        return {"error": str(error)}
    return {"columns": columns, "rows": rows}


def _limit() -> None:
    """Limit this process's memory beyond its current use, and its CPU time."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmData"))
        n_bytes = int(line.split()[1]) * 1024 + _OVERHEAD_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (n_bytes, n_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _value(value: object) -> Json:
    """Return a value for JSON: finite numbers and booleans unchanged, all else as strings."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping | list | tuple):
        return str(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


if __name__ == "__main__":
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdout.write(json.dumps(answer(**json.loads(sys.stdin.read()))))
