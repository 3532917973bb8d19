"""Export of runtime decisions, rewards, feedback and answers; update of the gates."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from convergence_core.errors import NoArmsError
from convergence_core.records import fields_of
from tasks.serving.bandit import Bandit
from tasks.serving.evidence import TrafficEvidence
from tasks.serving.guard import GuardLook, look
from tasks.serving.rated_answers import send_rewards
from tasks.serving.sample_ratio import check_shares
from tasks.serving.settings import read_settings
from tasks.serving.systems import Systems
from tasks.store.clock import wall_clock_us
from tasks.store.feedback.export import export_feedback
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.journal.sqlite_journal import open_journal
from tasks.store.layout import JOURNAL_FILE
from tasks.store.policy.experience_store import ExperienceStore
from tasks.store.runtime.answers import export_answers
from tasks.store.runtime.export import ExportSource, export, export_new
from tasks.store.runtime.promotions import save_look
from tasks.store.runtime.rows import GateLook, StoredAlarm
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.runtime.watches import mark_reported, unreported_alarms
from tasks.store.tables.tables import POLICY_TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldReport:
    """Counts and findings of one export."""

    n_decisions: int
    """New decisions."""
    n_rewards: int
    """New rewards."""
    feedback: Mapping[str, int]
    """Table of the feedback → new rows. Empty if the store has no feedback."""
    policy: Mapping[str, int]
    """Table of the policy → new rows. Empty if the store has no policy."""
    n_rating_rewards: int
    """Rewards sent now from ratings that ended processes had left."""
    evidence: dict[str, TrafficEvidence]
    """System and agent type → current evidence of its traffic."""
    guards: dict[str, GuardLook]
    """System and agent type → look of the guard on its promotion."""
    alarms: tuple[StoredAlarm, ...]
    """Unreported alarms."""


def fold_store(path: Path) -> FoldReport:
    """Export decisions, rewards and feedback of a store; update the evidence and guards.

    Raises:
        StoreError: the store cannot be read or written.
    """
    feedback: Mapping[str, int] = {}
    n_sent = 0
    with RuntimeStore(path) as store:
        if FeedbackStore.exists_in(path):
            with FeedbackStore(path) as ratings:
                n_sent = len(send_rewards(ratings, Systems(store)))
                feedback = export_feedback(ratings, ratings.root)
        policy = _export_policy(path)
        for system, agent_type in store.systems():
            if (group := store.group(system, agent_type)) is not None:
                store.reward_missing(system, group.group_id)
        counts = export(store, store.root)
        evidence: dict[str, TrafficEvidence] = {}
        guards: dict[str, GuardLook] = {}
        for system, agent_type in store.systems():
            group = store.group(system, agent_type)
            settings = read_settings(system, store.settings_text(system))
            if group is not None:
                check_shares(store, group, missing_reward=settings.missing_reward)
            watched = look(store, system, agent_type)
            if watched is not None:
                guards[f"{system}/{agent_type}"] = watched
            try:
                test = Bandit(store, system, agent_type).evidence()
            except NoArmsError:
                continue  # a single arm has no comparison
            evidence[f"{system}/{agent_type}"] = test
            if counts["rewards"]:
                save_look(store, _look(store, system, agent_type, test))
        alarms = tuple(unreported_alarms(store))
        root = store.root
    if (root / JOURNAL_FILE).exists():
        with contextlib.closing(open_journal(root)) as journal:
            export_answers(journal, root, wall_clock_us())
    return FoldReport(
        n_decisions=counts["decisions"],
        n_rewards=counts["rewards"],
        feedback=feedback,
        policy=policy,
        n_rating_rewards=n_sent,
        evidence=evidence,
        guards=guards,
        alarms=alarms,
    )


def _export_policy(path: Path) -> Mapping[str, int]:
    if not ExperienceStore.exists_in(path):
        return {}
    sources = [ExportSource(table=table, ranges="policy_exports") for table in POLICY_TABLES]
    with ExperienceStore(path) as store:
        return export_new(store.database, store.root, sources)


def mark_alarms_reported(path: Path, alarms: Sequence[StoredAlarm]) -> None:
    """Mark alarms as reported."""
    if alarms:
        with RuntimeStore(path) as store:
            mark_reported(store, alarms)


def _look(
    store: RuntimeStore, system: str, agent_type: str, evidence: TrafficEvidence
) -> GateLook:
    best = max(range(len(evidence.arms)), key=lambda arm: evidence.means[arm])
    others = [log_e for arm, log_e in enumerate(evidence.log_e) if arm != best]
    return GateLook(
        system=system,
        kind="traffic",
        candidate_id=evidence.arms[best],
        champion_id=None,
        run_id=None,
        decision="undecided" if evidence.winner is None else "promote",
        n=sum(evidence.numbers),
        log_e=min(others),
        log_threshold=evidence.log_threshold,
        details={
            "agent_type": agent_type,
            **fields_of(evidence, "regret", "n_to_verdict", "winner", "caveat"),
        },
        created_us=store.now_us(),
    )
