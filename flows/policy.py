"""Policy of prompt changes: rollouts, an update, and the gate before it serves."""

from typing import Annotated

from prefect import flow, get_run_logger
from pydantic import Field

from tasks.artifacts import show_policy
from tasks.inputs.loader import load
from tasks.policy.policy_round import PolicyRoundReport, open_policy_round
from tasks.secrets.process_redaction import redacted_errors
from tasks.steps import judge_policy, play_episode, simulate_edits, update_policy


@flow(name="policy", flow_run_name="policy {config}", validate_parameters=False)
def policy(config: str, seed: Annotated[int | None, Field(ge=0)] = None) -> PolicyRoundReport:
    """Play episodes of a system's prompts with the policy and with both baselines, learn, and say which serves.

    Args:
        config: path of `optimization.yaml`.
        seed: in place of `optimization.seed`.
    """
    with redacted_errors(), open_policy_round(load(config), seed=seed) as opened:
        simulate_edits(opened.run_id)
        while opened.should_continue():
            play_episode(opened.run_id, opened.number)
        update_policy(opened.run_id)
        report = opened.report(judge_policy(opened.run_id))
        get_run_logger().info("%s: %s", report.system, report.gate.reason)
        show_policy(report)
        return report
