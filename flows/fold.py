"""Export runtime decisions and rewards; update the gates."""

from pathlib import Path

from prefect import flow, get_run_logger

from tasks.notify.system_events import emit_alarms
from tasks.secrets.process_redaction import redacted_errors
from tasks.serving.fold import FoldReport, fold_store, mark_alarms_reported


@flow(name="fold", flow_run_name="fold {store}")
def fold(store: str = "./convergence-data", drift_events: bool = False) -> FoldReport:
    """Export the decisions and rewards of a store; update its evidence, ramps and alarms.

    Args:
        store: folder of the store, relative to the worker's working directory.
        drift_events: whether to emit an event per new alarm; an automation may start
            ``optimize/nightly`` on drift.
    """
    with redacted_errors():
        report = fold_store(Path(store))
        logger = get_run_logger()
        logger.info("%d decisions and %d rewards exported", report.n_decisions, report.n_rewards)
        for name, evidence in report.evidence.items():
            logger.info("%s: regret %.1f; %s", name, evidence.regret, evidence.sentence)
        for name, watched in report.guards.items():
            logger.info("%s: %s", name, watched.sentence)
        if drift_events:
            emit_alarms(report.alarms)
            mark_alarms_reported(Path(store), report.alarms)
        return report
