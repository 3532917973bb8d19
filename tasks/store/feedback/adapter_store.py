"""Store of trained adapters, beside the marks that they learned from."""

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
    STORE_ITSELF,
    active_adapter,
    add_event,
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
"""Status that is final → microseconds for which an adapter's files are kept from then on: those of a stale
one as long as a round may read them that began before, those of a rejected one to be looked at."""


class AdapterStore:
    """Adapters of one store's feedback. Thread-safe; blocks."""

    def __init__(self, feedback: FeedbackStore) -> None:
        """Use the database and the folder of the feedback; files that are to be gone are removed.

        Raises:
            StoreWriteError: they cannot be removed.
        """
        self.root = feedback.root
        self._feedback = feedback
        self._database = feedback.database
        self.remove_forgotten()

    def folder(self, version: str) -> Path:
        """Return the folder of an adapter's files."""
        return adapter_folder(self.root, version)

    def remove_forgotten(self) -> int:
        """Remove the files of adapters that learned from a forgotten user; return how many there were.

        Raises:
            StoreWriteError: they cannot be removed; ask again.
        """
        return remove_folders(self.root, [r.version for r in self.records() if r.is_removed])

    def remove_useless(self, *, dry_run: bool = False) -> tuple[str, ...]:
        """Remove the files of adapters that never answer again, ``KEPT_US`` after that was decided.

        What is known of them stays: status, checks and marks.

        Args:
            dry_run: say which they are; remove nothing.

        Returns:
            Their versions, in order of registration.

        Raises:
            StoreWriteError: they cannot be removed; ask again.
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

        It is stale at once if a mark it was trained on, or its parent, was changed meanwhile.

        Args:
            source: folder with PEFT's two files, which stay there.
            role: that it answers for.
            base_model: name of the model that it changes.
            objective: by which it was trained.
            marks: that it was trained on.
            parent: version that it was trained on from; ``None`` means the base model.
            by: who registers it.

        Raises:
            AdapterNotFoundError: there is no such parent.
            AdapterRefusedError: its files are missing, or a text on a mark was forgotten meanwhile.
            FeedbackRefusedError: a name breaks its rule.
            StoreWriteError: it cannot be written.
        """
        for key, name in (("role", role), ("base_model", base_model), ("objective", objective)):
            checked_name(key, name)
        # Alone: a mark that is changed at this moment would not see the rows that name it.
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
            add_event(connection, version, "candidate", reason=None, by=by, at_us=now)
            for mark in {_key(mark): mark for mark in marks}.values():
                connection.execute(
                    "INSERT INTO adapter_rows VALUES (?, ?, ?, ?, ?, ?)",
                    (version, *_key(mark), mark.seq),
                )
            if changed:
                mark_stale(connection, [version], reason=changed, at_us=now)
            # Before the commit: no row may name a folder that is not there.
            give_version(self.root, temporary, version)
        return version

    def record_checks(self, version: str, checks: Sequence[GateCheck]) -> None:
        """Store verdicts on an adapter durably; of those of one name the last counts.

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
        """Return the verdicts on an adapter that count, in the order of recording."""
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
        """Let an adapter answer for its role, durably; the one that did becomes inactive.

        Args:
            version: of the adapter.
            by: who activates it.
            reason: why.
            live_rule: how it is tried on live traffic against the one that answered before; ``None``: it
                answers all at once.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: a check is not passed (a trial may miss certainty of the gain), its status
                forbids it, or its files are not those that were registered.
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
                # Beside an adapter of another model it was the base model that answered.
                is_alike = before is not None and before.base_model == adapter.base_model
                begin_test(
                    connection,
                    live_rule,
                    version=version,
                    control=before.version if before is not None and is_alike else None,
                    role=adapter.role,
                    at_us=now,
                )

    def reject(self, version: str, reason: str, by: str) -> None:
        """Refuse an adapter for good, durably; of one that is active the one before it answers again.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: its status forbids it.
        """
        adapter = self.record(version)
        if (
            adapter.status == "active"
            and self._take_back(adapter.role, "rejected", reason, by) == version
        ):
            return
        self._decide(version, "rejected", reason, by)

    def defer(self, version: str, reason: str, by: str) -> None:
        """Keep an adapter undecided, durably: only ratings are missing.

        Raises:
            AdapterNotFoundError: there is no such adapter.
            AdapterRefusedError: its status forbids it.
        """
        self._decide(version, "undecided", reason, by)

    def _decide(self, version: str, status: AdapterStatus, reason: str, by: str) -> None:
        with self._database.transaction(alone=True) as connection:
            adapter = registered_adapter(connection, version)
            self._change(connection, adapter, status, reason, by)

    def rollback(self, role: str, by: str, *, reason: str = "rolled back") -> str | None:
        """Take the active adapter of a role back, durably.

        The one that was active before answers again if its files are those that were registered; one
        whose files are not is rejected, and the next one is tried. The marks that only the adapter that
        is taken back was trained on are open again.

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
        """Return the adapter that answers a conversation, and that answer's part in a test.

        Args:
            role: that answers.
            user_id: of the conversation.
            conversation: its id; of one without, what the user said first.

        Returns:
            ``None`` for the base model, and ``None`` where no test runs.
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
        """Return the adapters that answer for any role, in tests on live traffic as well."""
        with self._database.reading() as connection:
            return answering_versions(connection)

    def live_tests(self, role: str | None = None) -> list[LiveTest]:
        """Return the tests on live traffic of a role, or all, in order of their beginning."""
        return live_tests(self._database, role)

    def record(self, version: str) -> AdapterRecord:
        """Return an adapter.

        Raises:
            AdapterNotFoundError: there is none of that version.
        """
        with self._database.reading() as connection:
            return registered_adapter(connection, version)

    def records(self, role: str | None = None) -> list[AdapterRecord]:
        """Return the adapters of a role, or all, in order of registration."""
        return self._feedback.find(ADAPTERS, "ORDER BY created_us, version", role=role)

    def files_problem(self, adapter: AdapterRecord) -> str | None:
        """Return why an adapter's files are not those that were registered; ``None`` if they are."""
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
        """Give a role's active adapter another status and let the one before it answer, in one step.

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
    """Return the versions of a role that are active, and that would be after it."""
    active = active_adapter(connection, role)
    return None if active is None else active.version, previous_version(connection, role)


def _changed(
    connection: Connection, marks: Sequence[TrainedMark], parent: str | None
) -> str | None:
    """Return why an adapter that was trained on these is stale already; ``None`` if it is not.

    Raises:
        AdapterNotFoundError: there is no such parent.
        AdapterRefusedError: a mark is gone, so its weights may not be kept.
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
    """Return a value as the database holds it: NaN and infinite numbers become NULL."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _forgotten() -> AdapterRefusedError:
    return AdapterRefusedError(
        "an adapter must be trained on ratings that are in the store, but one was forgotten while it "
        "was trained, or never given. Remove its files and train again."
    )
