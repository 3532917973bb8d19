"""A cap in dollars holds by the server's own count, whatever runs in parallel and whatever fails."""

from pathlib import Path

import pytest

from convergence_core.budget.prices import CONFIGURED
from tasks.http.retries import Backoff
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tests.paid import books
from tests.support.paid_kinds import chat_bill
from tests.support.paid_runs import PRICES, begin, go_on, play, write_project

SMALL = {"optimization__evolution": {"population_size": 4, "generations": 2}}
DEAR = {
    "search_space__parameters__model": {
        "type": "categorical",
        "choices": ["grand-1"],
        "default": "grand-1",
    }
}
"""Every call costs enough that a small cap is met, whatever is searched."""


def test_a_run_without_a_cap_accounts_for_every_token_and_every_dollar(tmp_path: Path):
    with MockServer(MockOptions(rate_500=0.1, latency_ms=2)) as server:
        write_project(
            tmp_path,
            server.url,
            **SMALL,
        )
        result = play(begin(tmp_path))
        stats = server.stats()
    rows = books.ledger(tmp_path)
    assert len(rows) == result.n_calls == stats["calls"]
    by_model = {
        model: {**books.usage(paid), "answers": len(paid)}
        for model in PRICES
        if (paid := [row for row in rows if row["model"] == model and row["state"] == "done"])
    }
    assert by_model == stats["tokens"]
    assert books.cost(rows) == pytest.approx(chat_bill(stats), abs=1e-9)
    assert result.cost_usd == pytest.approx(chat_bill(stats), abs=1e-9)
    assert {row["price_version"] for row in rows if row["state"] == "done"} == {CONFIGURED}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))]
)
@pytest.mark.slow
def test_a_cap_holds_where_the_end_of_some_calls_is_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
):
    monkeypatch.setattr("tasks.calls.paid_calls.Backoff", lambda: Backoff(base_s=0.01, cap_s=0.05))
    options = MockOptions(seed=seed, rate_cut=0.15, rate_invalid=0.1, rate_500=0.1, latency_ms=2)
    cap = 0.02
    with MockServer(options) as server:
        write_project(tmp_path, server.url, budget={"max_usd": cap}, **DEAR)
        result = play(begin(tmp_path))
        stats = server.stats()
    assert result.status == "budget"
    assert chat_bill({**stats, "untold_tokens": {}}) == pytest.approx(result.cost_usd, abs=1e-9)
    assert result.cost_usd is not None
    assert result.cost_usd < chat_bill(stats) <= cap
    maybe = sum(row["maybe_usd"] or 0.0 for row in books.ledger(tmp_path))
    assert chat_bill(stats) <= result.cost_usd + maybe <= cap


@pytest.mark.slow
def test_a_raised_cap_goes_on_and_pays_nothing_twice(tmp_path: Path):
    with MockServer(MockOptions(latency_ms=2)) as server:
        size = {"population_size": 5, "generations": 3}
        write_project(
            tmp_path, server.url, budget={"max_usd": 0.012}, optimization__evolution=size, **DEAR
        )
        capped = play(begin(tmp_path))
        before = server.stats()
        paid = books.done(books.ledger(tmp_path))
        assert capped.status == "budget"
        assert len(paid) == before["calls"]

        raised = play(go_on(tmp_path, capped.label, budget={"max_usd": 0.2}))
        after = server.stats()
    rows = books.ledger(tmp_path)
    assert raised.status == "done"
    assert raised.generations_run == 4, "the cells that the old limit kept back come first, as one"
    assert capped.n_skipped > raised.n_skipped == 0
    assert not [failure for failure in raised.failures if failure.reason == "budget"]
    n_more = after["calls"] - before["calls"]
    assert 0 < n_more == raised.n_calls == len(books.made(rows))
    assert len(books.done(rows)) == n_more
    assert not paid & books.done(rows)
    assert capped.cost_usd is not None
    assert raised.cost_usd == pytest.approx(chat_bill(after) - capped.cost_usd, abs=1e-9)
    assert 0.012 < chat_bill(after) <= 0.2, "the limit holds for both runs together"
