"""Upkeep of a store, nightly or on request."""

from pathlib import Path
from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from convergence_core.errors import StoreDamagedError
from tasks.prefect_support.orphans import cancel_orphans
from tasks.run.maintenance import Upkeep, maintain_store
from tasks.secrets.process_redaction import redacted_errors


@flow(name="maintain", flow_run_name="maintain {store}")
def maintain(
    store: str = "./convergence-data",
    keep_days: Annotated[int | None, Field(ge=1)] = None,
) -> Upkeep:
    """Sweep a store, remove old runs, and check every file.

    Subflows that a killed run left pending are cancelled on Prefect's server.

    Args:
        store: folder of the store, relative to the worker's working directory.
        keep_days: days after which finished runs lose their tables, except for the two latest of
            each system and those of champions; by default all are kept.

    Raises:
        StoreDamagedError: a file cannot be read; the other steps have run.
    """
    with redacted_errors():
        report = maintain_store(Path(store), keep_days=keep_days)
        logger = get_run_logger()
        logger.info("cancelled %d subflows that a killed run never started", cancel_orphans())
        logger.info(
            "%d runs, %d bytes; %d files swept, %d runs and files of %d adapters removed",
            report.n_runs,
            report.n_bytes,
            report.n_swept,
            len(report.removed),
            len(report.adapters),
        )
        if report.damage:
            raise StoreDamagedError("; ".join(report.damage))
        return report
