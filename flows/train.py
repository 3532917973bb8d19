"""Training of a local model's adapters on ratings."""

from pathlib import Path

from prefect import flow, get_run_logger

from convergence_core.errors import TrainingFailedError
from tasks.artifacts import show_training
from tasks.secrets.process_redaction import redacted_errors
from tasks.training.looks import look_at_store
from tasks.training.round import RoundReport


@flow(name="train", flow_run_name="train {config}")
def train(config: str, role: str | None = None, force: bool = False) -> list[RoundReport]:
    """Train, check and, if better, activate a new adapter of each role with enough new marks.

    Args:
        config: path of `optimization.yaml`.
        role: role to train; ``None`` means every role with marks.
        force: whether to skip the wait for idleness and for `min_ratings` new marks.

    Raises:
        TrainingFailedError: a role's training failed and changed nothing; the other roles were
            processed.
    """
    with redacted_errors():
        reports = look_at_store(Path(config), role=role, is_forced=force)
        logger = get_run_logger()
        for report in reports:
            logger.info("%s: %s. %s", report.role, report.status, report.sentence)
        show_training(reports)
        failed = [report for report in reports if report.status == "failed"]
        if failed:
            raise TrainingFailedError(
                "; ".join(f"{report.role}: {report.sentence}" for report in failed)
            )
        return reports
