"""Store of trained adapters, next to the marks that they learned from."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from convergence_core.errors import AdapterRefusedError
from convergence_core.feedback.activation_gate import lacks_power
from convergence_core.feedback.adapter_records import (
    AdapterRecord,
    AdapterStatus,
    GateCheck,
    TrainedMark,
    check_gate,
)
from convergence_core.feedback.live_test_records import LiveAnswer, LiveTest, assigned
from tasks.store.database import Connection
from tasks.store.feedback.adapter_changes import (
    ADD_EVENT,
    STORE_ITSELF,
    active_adapter,
    answering_versions,
    change_status,
    mark_stale,
    previous_version,
    registered_adapter,
)
from tasks.store.feedback.adapter_files import (
    adapter_folder,
    adapters_lock,
    copied_in,
    folder_sha256,
    give_version,
    next_version,
    remove_folders,
)
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.store.feedback.live_tests import begin_test, end_test_of, live_tests, running_test
from tasks.store.feedback.schema import ADAPTERS, GATE_CHECKS, MARKS, checked_name

if TYPE_CHECKING:
    from convergence_core.config.feedback import LiveTestConfig

_HOUR_US: Final = 3_600_000_000
KEPT_US: Final[Mapping[AdapterStatus, int]] = {"stale": _HOUR_US, "rejected": 7 * 24 * _HOUR_US}
"""Final status → microseconds for which an adapter's files are kept. A running round may still
read those of a stale adapter; those of a rejected one remain for inspection.
"""


class AdapterStore:
    """Adapters of one store's feedback. Thread-safe; blocks."""

    def __init__(self, feedback: FeedbackStore) -> None:
        """Use the database and folder of the feedback, and finish pending removals of files.

        Raises:
            StoreWriteError: the files cannot be removed.
        """
        self.root = feedback.root
        self._feedback = feedback
        self._database = feedback.database
        self.remove_forgotten()

    def folder(self, version: str) -> Path:
        """Return the folder of an adapter's files."""
        return adapter_folder(self.root, version)

    def remove_forgotten(self) -> int:
        """Remove the files of adapters that learned from a forgotten user; return their number.

        Raises:
            StoreWriteError: the files cannot be removed; call again.
        """
        return remove_folders(self.root, [r.version for r in self.records() if r.is_removed])

    def remove_useless(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the files of rejected and stale adapters, ``KEPT_US`` after the decision.

        Status, checks and marks stay.

        Args:
            dry_run: return the versions without removing anything.

        Returns:
            Their versions, in order of registration.

        Raises:
            StoreWriteError: the files cannot be removed; call again.
        """
        now = self._feedback.now_us()
        useless = [
            record
            for record in self.records()
            if record.status in KEPT_US
            and record.decided_us + KEPT_US[record.status] <= now
            and self.folder(record.version).is_dir()
        ]
        if useless and not dry_run:
            with adapters_lock(self.root):
                remove_folders(self.root, [adapter.version for adapter in useless])
        return tuple(adapter.version for adapter in useless)

    def register(
        self,
        source: Path,
        *,
        role: str,
        base_model: str,
        objective: str,
        marks: Sequence[TrainedMark],
        parent: str | None = None,
        by: str = "training",
    ) -> str:
        """Copy an adapter into the store as a candidate, durably; return its version.

        It is stale immediately if its parent or one of its marks has changed meanwhile.

        Args:
            source: folder with PEFT's two files, which stay there.
            role: role that the adapter answers for.
            base_model: name of the model that it changes.
            objective: training objective.
            marks: training marks.
            parent: version that training started from; ``None`` means the base model.
            by: author of the registration.

        Raises:
            AdapterNotFoundError: there is no such parent.
            AdapterRefusedError: its files are missing, or one of its marks was forgotten
                meanwhile.
            FeedbackRefusedError: a name breaks its rule.
            StoreWriteError: the store cannot be written.
        """
        for key, name in (("role", role), ("base_model", base_model), ("objective", objective)):
            checked_name(key, name)
        # Alone, because a concurrent change of a mark would not see the rows that name it.
        with (
            adapters_lock(self.root),
            copied_in(self.root, source) as temporary,
            self._database.transaction(alone=True) as connection,
        ):
            sha256, now = folder_sha256(temporary), self._feedback.now_us()
            changed = _changed(connection, marks, parent)
            known = connection.execute("SELECT version FROM adapters").fetchall()
            version = next_version(role, (known_version for (known_version,) in known))
            adapter = AdapterRecord(
                version=version, role=role, base_model=base_model, parent=parent, objective=objective,
                status="candidate", reason=None, folder_sha256=sha256, n_rows=len(marks),
                is_removed=False, created_us=now, decided_us=now,
            )  # fmt: skip
            ADAPTERS.add(connection, adapter)
            connection.execute(ADD_EVENT, (version, "candidate", None, by, now))
            for mark in {_key(mark): mark for mark in marks}.values():
                connection.execute(
                    "INSERT INTO adapter_rows VALUES (?, ?, ?, ?, ?, ?)",
                    (version, *_key(mark), mark.seq),
                )
            if changed:
                mark_stale(connection, [version], reason=changed, at_us=now)
            # Before the commit, because no row may name a missing folder.
            give_version(self.root, temporary, version)
        return version

    def record_checks(self, version: str, checks: Sequence[GateCheck]) -> None:
        """Store verdicts on an adapter durably; the last one of each name is valid.

        Raises:
            AdapterNotFoundError: there is no such adapter.
        """
        now = self._feedback.now_us()
        with self._database.transaction() as connection:
            registered_adapter(connection, version)
            for check in checks:
                row = GATE_CHECKS.values(check, version, now, clean=self._feedback.clean)
                connection.execute(GATE_CHECKS.insert, [*map(_finite, row)])

    def checks(self, version: str) -> tuple[GateCheck, ...]:
        """Return an adapter's valid verdicts in the order of recording."""
        checks = self._feedback.find(GATE_CHECKS, "ORDER BY seq", version=version)
        last = {check.name: check for check in checks}
        return tuple(last.values())

    def activate(
        self,
        version: str,
        by: str,
        *,
        reason: str = "passed every check",
        live_rule: "LiveTestConfig | None" = None,
    ) -> None:
        """Let an adapter answer for its role, durably; the previous one becomes inactive.

        Args:
            version: version of the adapter.
            by: author of the activation.
            reason: reason for the activation.
            live_rule: settings of a live test against the previous adapter; ``None`` makes the
                adapter answer all requests immediately.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: a check has not passed (with ``live_rule``, the gain may be
                uncertain), the status does not allow it, or the files differ from the registered
                ones.
        """
        adapter = self.record(version)
        checks = self.checks(version)
        if live_rule is None or not lacks_power(checks):
            check_gate(version, checks)
        problem = self.files_problem(adapter)
        if problem is not None:
            raise AdapterRefusedError(
                f"adapter {version} must have the files that were registered, but {problem}. "
                "Restore them from a backup, or train a new one."
            )
        with self._database.transaction(alone=True) as connection:
            adapter = registered_adapter(connection, version)
            now = self._feedback.now_us()
            if adapter.status == "active":
                if live_rule is None:
                    claim = f"{version} is to answer all ({reason})"
                    end_test_of(connection, adapter.role, version, reason=claim, at_us=now)
                return
            before = active_adapter(connection, adapter.role)
            if before is not None:
                self._change(connection, before, "inactive", f"{version} took its place", by)
            self._change(connection, adapter, "active", reason, by)
            if live_rule is not None:
                # If the previous adapter changes another model, the control is the base model.
                is_alike = before is not None and before.base_model == adapter.base_model
                begin_test(connection, live_rule, adapter, before if is_alike else None, at_us=now)

    def reject(self, version: str, reason: str, by: str) -> None:
        """Reject an adapter permanently, durably; if it is active, the previous one answers again.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: its status does not allow it.
        """
        adapter = self.record(version)
        is_active = adapter.status == "active"
        if not is_active or self._take_back(adapter.role, "rejected", reason, by) != version:
            self._decide(version, "rejected", reason, by)

    def defer(self, version: str, reason: str, by: str) -> None:
        """Keep an adapter undecided, durably, because only ratings are missing.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: its status does not allow it.
        """
        self._decide(version, "undecided", reason, by)

    def _decide(self, version: str, status: AdapterStatus, reason: str, by: str) -> None:
        with self._database.transaction(alone=True) as connection:
            adapter = registered_adapter(connection, version)
            self._change(connection, adapter, status, reason, by)

    def rollback(self, role: str, by: str, *, reason: str = "rolled back") -> str | None:
        """Roll back the active adapter of a role, durably.

        The previously active one answers again if its files match the registration. Otherwise it
        is rejected and the one before it is tried. Marks that only the rolled-back adapter learned
        from become open again.

        Returns:
            The version that answers now; ``None`` means the base model.

        Raises:
            AdapterRefusedError: no adapter of the role is active.
        """
        if self._take_back(role, "rolled_back", reason, by) is None:
            raise AdapterRefusedError(
                f"`role` must have an active adapter to roll back, but {role[:200]!r} has none: the "
                "base model answers. `convergence adapters list` shows what there is."
            )
        now_active = self.active(role)
        return None if now_active is None else now_active.version

    def active(self, role: str) -> AdapterRecord | None:
        """Return the adapter that answers for a role; ``None`` if the base model does."""
        with self._database.reading() as connection:
            return active_adapter(connection, role)

    def answering(
        self, role: str, user_id: str, conversation: str
    ) -> tuple[AdapterRecord | None, LiveAnswer | None]:
        """Return the adapter that answers a conversation and the answer's part in a live test.

        Args:
            role: role that answers.
            user_id: user of the conversation.
            conversation: id of the conversation, or its first user message if it has none.

        Returns:
            Adapter, ``None`` for the base model; part, ``None`` if no test runs.
        """
        with self._database.reading() as connection:
            active = active_adapter(connection, role)
            test = None if active is None else running_test(connection, role)
            if active is None or test is None or test.version != active.version:
                return active, None
            part = assigned(test, user_id, conversation)
            if part.is_candidate:
                return active, part
            control = test.control
            return None if control is None else registered_adapter(connection, control), part

    def answering_versions(self) -> frozenset[str]:
        """Return the adapters that answer for any role, including controls of live tests."""
        with self._database.reading() as connection:
            return answering_versions(connection)

    def live_tests(self, role: str | None = None) -> list[LiveTest]:
        """Return the live tests of a role or of all, in order of start."""
        return live_tests(self._database, role)

    def record(self, version: str) -> AdapterRecord:
        """Return an adapter.

        Raises:
            AdapterNotFoundError: the version is not registered.
        """
        with self._database.reading() as connection:
            return registered_adapter(connection, version)

    def records(self, role: str | None = None) -> list[AdapterRecord]:
        """Return the adapters of a role or of all, in order of registration."""
        return self._feedback.find(ADAPTERS, "ORDER BY created_us, version", role=role)

    def files_problem(self, adapter: AdapterRecord) -> str | None:
        """Return why an adapter's files differ from the registered ones, or ``None``."""
        if adapter.is_removed:
            return "they were removed with what a forgotten user wrote"
        if adapter.status in KEPT_US and not self.folder(adapter.version).exists():
            return (
                f"they were removed, for an adapter that is {adapter.status} never answers again"
            )
        try:
            sha256 = folder_sha256(self.folder(adapter.version))
        except AdapterRefusedError as error:
            return f"they cannot be read: {error}"
        return None if sha256 == adapter.folder_sha256 else "their SHA-256 is another one"

    def _take_back(self, role: str, status: AdapterStatus, reason: str, by: str) -> str | None:
        """Change the status of a role's active adapter and activate the previous one, in one step.

        Returns:
            The version that was active; ``None`` if none was.
        """
        while True:
            with self._database.reading() as connection:
                seen = _line(connection, role)
            active, previous = seen
            if active is None:
                return None
            problem = None if previous is None else self.files_problem(self.record(previous))
            with self._database.transaction(alone=True) as connection:
                if _line(connection, role) != seen:
                    continue  # another process was faster
                before = None if previous is None else registered_adapter(connection, previous)
                if before is not None and problem is not None:
                    words = f"its files are not those that were registered: {problem}"
                    self._change(connection, before, "rejected", words, STORE_ITSELF)
                    continue
                self._change(
                    connection, registered_adapter(connection, active), status, reason, by
                )
                if before is not None:
                    words = f"{active} was {status.replace('_', ' ')}"
                    self._change(connection, before, "active", words, by)
                return active

    def _change(
        self,
        connection: Connection,
        adapter: AdapterRecord,
        status: AdapterStatus,
        reason: str,
        by: str,
    ) -> None:
        reason, now = self._feedback.clean(reason), self._feedback.now_us()
        change_status(connection, adapter, status, reason=reason, by=by, at_us=now)


def _key(mark: TrainedMark) -> tuple[str, str, str, str]:
    return mark.kind, mark.interaction_id, mark.other_id, mark.user_id


def _line(connection: Connection, role: str) -> tuple[str | None, str | None]:
    """Return the active version of a role and its predecessor."""
    active = active_adapter(connection, role)
    return None if active is None else active.version, previous_version(connection, role)


def _changed(
    connection: Connection, marks: Sequence[TrainedMark], parent: str | None
) -> str | None:
    """Return why an adapter with these marks and parent is already stale; ``None`` if it is not.

    Raises:
        AdapterNotFoundError: there is no such parent.
        AdapterRefusedError: a mark is gone, so the store may not keep the weights.
    """
    if parent is not None:
        adapter = registered_adapter(connection, parent)
        if adapter.is_removed:
            raise _forgotten()
        if adapter.status == "stale":
            return f"its parent {parent} is stale"
    for mark in marks:
        answers = [answer_id for answer_id in (mark.interaction_id, mark.other_id) if answer_id]
        values = (*answers, mark.user_id)
        table = MARKS[mark.kind]
        sql = f"SELECT max(seq) FROM {table.name} WHERE {table.at}"  # noqa: S608 - declared names
        (last,) = connection.execute(sql, values).fetchone()
        if last is None:
            raise _forgotten()
        if last != mark.seq:
            return f"a {mark.kind} it was trained on was changed while it was trained"
    return None


def _finite(value: Any) -> Any:
    """Convert NaN and infinite numbers to ``None``, which the database stores as NULL."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _forgotten() -> AdapterRefusedError:
    return AdapterRefusedError(
        "an adapter must be trained on ratings that are in the store, but one was forgotten while it "
        "was trained, or never given. Remove its files and train again."
    )
