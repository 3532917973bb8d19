"""Production comes home: what requests taught goes to the tables and to the list of looks."""

from pathlib import Path

from prefect import flow, get_run_logger

from tasks.folding import FoldReport, fold_store
from tasks.process_redaction import redacted_errors


@flow(name="fold", flow_run_name="fold {store}")
def fold(store: str = "./convergence-data") -> FoldReport:
    """Export the decisions and rewards of a store and look at its evidence.

    Args:
        store: folder of the store; relative to the working directory of the worker.
    """
    with redacted_errors():
        report = fold_store(Path(store))
        logger = get_run_logger()
        logger.info("%d decisions and %d rewards exported", report.n_decisions, report.n_rewards)
        for name, found in report.evidence.items():
            logger.info("%s: winner %s, regret %.1f", name, found.winner, found.regret)
        return report
