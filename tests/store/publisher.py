"""Child process: resume a run, publish its generations, acknowledge each on standard output.

Arguments: store, run id, number of generations, 1-based number of the file operation before which
to die by SIGKILL (0: none; the parent kills).
"""

import os
import signal
import sys
from pathlib import Path

from tasks.store import layout
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.store_rows import generation_tables


def die_before(n_operations: int) -> None:
    """Count publications of files, before and after the rename; die at the given one."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        if count == n_operations:
            os.kill(os.getpid(), signal.SIGKILL)

    original = layout.publish_file

    def publish(temporary: Path, final: Path) -> None:
        is_table = final.suffix == ".parquet"
        if is_table:
            step()
        original(temporary, final)
        if is_table:
            step()

    setattr(layout, "publish_file", publish)  # noqa: B010 - a double, not its API


def main(path: str, run_id: str, n_generations: int, n_operations: int) -> None:
    """Publish what is missing."""
    if n_operations:
        die_before(n_operations)
    store = ParquetStore(path)
    last = store.checkpoint(run_id)
    for generation in range(0 if last is None else last.generation + 1, n_generations):
        store.publish(run_id, generation, generation_tables(run_id, generation))
        print(generation, flush=True)  # noqa: T201 - the acknowledgement


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
