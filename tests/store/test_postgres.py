"""The journal in Postgres: machines that die, connections that drop, and secrets that stay."""

import random
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import psycopg
import pytest

from convergence_core.errors import StoreDamagedError, StoreError, StoreWriteError
from convergence_core.ports import Settlement
from tasks.store import postgres
from tasks.store.clock import wall_clock_us
from tasks.store.journal import sql_journal
from tasks.store.journal.postgres_journal import PostgresJournal
from tests.store.asker import RUN, intent
from tests.store.postgres_server import PASSWORD, PostgresServer, postgres_server
from tests.support.children import start_child

LEASE_US = 3_600_000_000


@pytest.fixture
def server():
    return postgres_server()


@pytest.fixture
def url(server):
    return server.new_schema()


@pytest.fixture
def journal(url):
    with PostgresJournal(url) as journal:
        yield journal


def settled(number: int, attempt: int = 1) -> Settlement:
    return Settlement(
        call_key=f"key-{number}",
        attempt=attempt,
        state="done",
        outcome=number,
        started_us=1,
        ended_us=2,
        cost_usd=1.0,
    )


def drop_connections(server: PostgresServer) -> None:
    """Let the server end every connection but the one that asks for it."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'convergence'"
        )


# -- processes that die


def test_a_call_whose_process_was_killed_is_free_when_its_lease_ends(url):
    with start_child("tests.store.claimant", url, "claimed") as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "claimed\n"
        child.send_signal(signal.SIGKILL)
    with PostgresJournal(url) as soon:
        assert [claim.state for claim in soon.claim([intent(0)], "other")] == ["busy"]
    with PostgresJournal(url, now_us=lambda: wall_clock_us() + LEASE_US) as later:
        (claim,) = later.claim([intent(0)], "other")
        assert (claim.state, claim.attempt) == ("granted", 2)
        rows = later.attempts(RUN, generation=0)
    assert [(row["state"], row["error_type"], row["maybe_usd"]) for row in rows] == [
        ("failed", "lost", 1.0),
        ("started", None, 1.0),
    ]


def test_a_process_killed_in_the_middle_of_a_claim_leaves_nothing_and_lets_others_go_on(url):
    with (
        start_child("tests.store.claimant", url, "locked") as child,
        PostgresJournal(url) as journal,
        ThreadPoolExecutor() as threads,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "locked\n"
        waiting = threads.submit(journal.claim, [intent(0)], "other")
        child.send_signal(signal.SIGKILL)
        (claim,) = waiting.result()
    assert (claim.state, claim.attempt) == ("granted", 1)


def test_a_call_that_is_answered_while_its_run_is_given_up_is_not_lost(journal, url):
    journal.claim([intent(0)], "one")
    waiting = (
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE application_name = 'convergence' AND wait_event_type = 'Lock'"
    )
    with (
        psycopg.connect(url) as other,
        psycopg.connect(url, autocommit=True) as watcher,
        ThreadPoolExecutor() as threads,
    ):
        other.execute("UPDATE convergence_calls SET state = 'done'")
        lost = threads.submit(journal.abandon, RUN)
        while not watcher.execute(waiting).fetchall()[0][0]:
            assert not lost.done()
        other.execute("UPDATE convergence_attempts SET state = 'done'")
        other.commit()
        assert lost.result() == []


def test_batches_that_lock_the_same_calls_in_any_order_never_lock_each_other_out(url, monkeypatch):
    monkeypatch.setattr(postgres, "_TRIES", 1)  # a deadlock is an error then, and not repeated

    def work(seed: int) -> int:
        rng = random.Random(seed)
        n_granted = 0
        with PostgresJournal(url) as journal:
            for _ in range(30):
                numbers = rng.sample(range(60), 20)
                claims = journal.claim([intent(n) for n in numbers], str(seed))
                granted = [n for n, c in zip(numbers, claims, strict=True) if c.state == "granted"]
                journal.settle([settled(number) for number in granted])
                n_granted += len(granted)
        return n_granted

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(work, range(4))) == 60


# -- connections that drop


def test_a_connection_that_dropped_meanwhile_is_made_again(journal, server):
    journal.claim([intent(0)], "me")
    uses: tuple[Callable[[], object], ...] = (
        lambda: journal.settle([settled(0)]),
        lambda: journal.claim([intent(1)], "me"),
        lambda: journal.answers(["key-0"]),
        lambda: journal.totals(RUN),
        lambda: journal.attempts(RUN, generation=0),
        lambda: journal.abandon(RUN),
    )
    for use in uses:
        drop_connections(server)
        use()
    assert journal.totals(RUN).n_done == 1


def dropping(
    kind: object, method: str, server: PostgresServer, *, after: bool
) -> Callable[..., object]:
    """Return a method that drops all connections at its first use, before or after it sends."""
    original = getattr(kind, method)
    is_first = True

    def dropped(*given: object) -> object:
        nonlocal is_first
        drops, is_first = is_first, False
        if drops and not after:
            drop_connections(server)
        result = original(*given)
        if drops and after:
            drop_connections(server)
        return result

    return dropped


@pytest.mark.parametrize("after", [False, True])
def test_a_claim_is_repeated_if_the_connection_drops_before_it_writes(
    journal, server, monkeypatch, after
):
    name = "_load_claimed"
    monkeypatch.setattr(
        PostgresJournal, name, dropping(PostgresJournal, name, server, after=after)
    )
    (claim,) = journal.claim([intent(0)], "me")
    assert (claim.state, claim.attempt) == ("granted", 1)
    assert journal.totals(RUN).n_attempts == 1


def test_a_settlement_whose_commit_is_unknown_is_repeated_since_that_changes_nothing(
    journal, server, monkeypatch
):
    journal.claim([intent(0)], "me")
    dropped = dropping(sql_journal, "_note_activity", server, after=True)
    monkeypatch.setattr(sql_journal, "_note_activity", dropped)
    journal.settle([settled(0)])
    assert journal.totals(RUN).n_done == 1


def test_a_server_that_is_gone_is_an_error_and_one_that_is_back_is_used(url, server):
    with PostgresJournal(url) as journal:
        journal.claim([intent(0)], "me")
        server.stop()
        try:
            with pytest.raises(StoreWriteError, match="Check that the server runs") as caught:
                journal.settle([settled(0)])
        finally:
            server.start()
        assert_no_secret(caught.value)
        journal.settle([settled(0)])
        assert journal.totals(RUN).n_done == 1


# -- settings


def test_commits_are_durable_also_where_the_server_would_not_wait(server):
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE careless LOGIN PASSWORD 'x' SUPERUSER")
        connection.execute("ALTER ROLE careless SET synchronous_commit = off")
    url = server.new_schema().replace("tester", "careless").replace(quote(PASSWORD, safe=""), "x")
    with PostgresJournal(url) as journal:
        found = journal._database.write(
            lambda connection: connection.execute("SHOW synchronous_commit").fetchall,
            lambda _, rows: rows,
        )
    assert found == [("on",)]


# -- refusals


def assert_no_secret(error: BaseException | None) -> None:
    while error is not None:
        text = f"{error} {error!r}"
        assert PASSWORD not in text
        assert quote(PASSWORD, safe="") not in text
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "value",
    [
        f"postgresql://me:{PASSWORD}@host:port/db?x",
        f"host=localhost password='{PASSWORD}'",
        f"mysql://me:{quote(PASSWORD, safe='')}@host/db",
        "",
    ],
)
def test_a_value_that_is_no_url_of_postgres_is_refused_without_being_shown(value):
    with pytest.raises(StoreError, match=r"storage\.journal.*postgresql://USER") as caught:
        PostgresJournal(value)
    assert_no_secret(caught.value)


def test_no_message_holds_the_password(server):
    folder = quote(str(server._folder), safe="")
    for wrong in (
        server.url().replace("/postgres?", "/nowhere?"),
        server.url().replace("tester", "nobody"),
        server.url().replace(folder, "%2Fnowhere"),
        server.url(password=f"{PASSWORD}!"),
        server.url(schema="nowhere"),
    ):
        with pytest.raises(StoreWriteError, match="cannot use the journal") as caught:
            PostgresJournal(wrong)
        assert_no_secret(caught.value)


def test_a_changed_row_is_named_by_who_resumes_or_asks_for_its_answer(journal, url):
    journal.claim([intent(0)], "me")
    journal.settle([settled(0)])
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE convergence_attempts SET outcome = '1'")
    uses: list[Callable[[], object]] = [
        lambda: journal.abandon(RUN),
        lambda: journal.answers(["key-0"]),
    ]
    for use in uses:
        with pytest.raises(StoreDamagedError, match=r"attempt 1 of call key-0.*from a backup"):
            use()


def test_a_claim_whose_commit_is_unknown_is_an_error_and_not_repeated(
    journal, server, monkeypatch
):
    dropped = dropping(sql_journal, "_note_activity", server, after=True)
    monkeypatch.setattr(sql_journal, "_note_activity", dropped)
    with pytest.raises(StoreWriteError, match="convergence resume"):
        journal.claim([intent(0)], "me")
    assert journal.totals(RUN).n_attempts == 0
    assert [claim.state for claim in journal.claim([intent(0)], "me")] == ["granted"]
