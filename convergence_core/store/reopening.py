"""Makes a finished run an unfinished one again, so that its missing cells can be asked.

While the run's file in ``final`` exists, its live files are invisible. So they are all written
first, then that file goes, and at no moment is a generation missing or there twice. The final
re-estimation is left out: it is made anew, mostly from stored answers.
"""

from collections import defaultdict
from pathlib import Path

from convergence_core.store.layout import (
    FINAL_GENERATION,
    PART_FILE,
    RUN_FILE,
    folder_of,
    generation_file,
    sync_folder,
    writing,
)
from convergence_core.store.parquet_files import ParquetFiles
from convergence_core.store.protocols import Row
from convergence_core.store.tables import GENERATION_TABLES, RUNS


def reopen(root: Path, files: ParquetFiles, run_id: str, row: Row) -> None:
    """Turn a run's final files back into live ones.

    Args:
        root: folder of the store.
        files: reads and writes single files.
        run_id: a finished run.
        row: its row from now on.

    Raises:
        StoreDamagedError: a final file cannot be read.
        StoreWriteError: the run is still finished then.
    """
    for table in reversed(GENERATION_TABLES):  # the commits first: they name the other files
        files.clear_address(folder_of(root, "live", table.name, run_id))
    for table in GENERATION_TABLES:
        part = folder_of(root, "final", table.name, run_id) / PART_FILE
        live = folder_of(root, "live", table.name, run_id)
        files.delete(live / generation_file(FINAL_GENERATION))
        if not part.exists():
            continue
        has_generation = any(column.name == "generation" for column in table.columns)
        by_generation: dict[int, list[Row]] = defaultdict(list)
        for found in files.read(table, [str(part)]):
            # Payloads are kept once per run, so the first generation may hold them all.
            generation = found["generation"] if has_generation else 0
            if isinstance(generation, int):
                by_generation[generation].append(found)
        written = {generation_file(generation) for generation in by_generation}
        for left in live.glob("g*.parquet") if live.is_dir() else ():
            if left.name not in written:
                files.forget(left)  # its rows are in another file now
        for generation, rows in sorted(by_generation.items()):
            files.write(table, rows, live / generation_file(generation))
    files.write(RUNS, [row], folder_of(root, "live", RUNS.name, run_id) / RUN_FILE)
    marker = folder_of(root, "final", RUNS.name, run_id) / PART_FILE
    files.delete(marker)
    with writing(marker):
        sync_folder(marker.parent)
