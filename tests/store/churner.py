"""Child process: publish, finish and sweep runs while others read.

Arguments: store, prefix of run ids, number of runs.
"""

import sys

from tasks.store.clock import wall_clock_us
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.store_rows import final_tables, generation_tables, run_record

GRACE_US = 10_000_000
"""Longer than any query here takes."""


def main(path: str, prefix: str, n_runs: int) -> None:
    """Make runs of three generations."""
    store = ParquetStore(path)
    for number in range(n_runs):
        run_id = f"{prefix}-{number:04d}"
        store.save_run(run_record(run_id))
        for generation in range(3):
            store.publish(run_id, generation, generation_tables(run_id, generation))
        store.publish(run_id, -1, final_tables(run_id))
        store.finish_run(run_record(run_id, status="done"))
        store.sweep(wall_clock_us(), GRACE_US)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
