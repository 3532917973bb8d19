"""Rounds of games within a run: the same plays as alone, its budget, what a kill leaves, what a run tells."""

import html
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from convergence.cost_estimate import estimate
from convergence_core.games.meta_critic import effects
from convergence_core.games.round_records import (
    rounds_with_change,
)
from convergence_core.result import RunResult
from tasks.games.games_report import latest_round, report_of
from tasks.games.round_rows import past_rounds
from tasks.games.sandbox import why_unavailable
from tasks.inputs.loader import load
from tasks.report.markdown import report_markdown
from tasks.report.page import report_html
from tasks.run.case_review import proposed_for
from tasks.run.games_opener import open_round_within
from tasks.run.opener import prepare_run
from tasks.store import ParquetStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tests.games.game_worlds import EVERY_2, KUHN, NIM, Gamer, optimize, play_round, write_games
from tests.games.test_hard_cases import GAME, TARGET
from tests.support.children import ROOT
from tests.support.writing_runs import STORE, rows

FINAL = """
    SELECT case_id, avg(reward) AS reward FROM evaluations
    WHERE generation IS NULL AND role = 'holdout' AND candidate_id = $leader GROUP BY case_id"""
NOWHERE = "http://127.0.0.1:9"
PLAYS = "SELECT * EXCLUDE (run_id) FROM game_plays ORDER BY round, game, position"
COINS = "SELECT * EXCLUDE (run_id) FROM game_coins ORDER BY round, game"
ROUNDS = "SELECT * EXCLUDE (run_id) FROM game_rounds ORDER BY round"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Gamer, RunResult]:
    """A run of five generations with two rounds, which nothing disturbed."""
    folder, gamer = tmp_path_factory.mktemp("whole"), Gamer()
    with gamer.server() as server:
        result = optimize(write_games(folder, server.url, KUHN | NIM, **EVERY_2))
    return folder, gamer, result


def test_rounds_are_saved_with_the_generations_after_them_and_paid_by_the_run(whole):
    folder, gamer, _ = whole
    (record,) = ParquetStore(folder / STORE).runs()
    assert [(one["round"], one["generation"]) for one in rows(folder, ROUNDS)] == [(0, 2), (1, 4)]
    assert {one["generation"] for one in rows(folder, PLAYS)} == {2, 4}
    (paid,) = rows(
        folder, "SELECT count(*) n, sum(cost_usd) usd FROM attempts WHERE purpose = 'game'"
    )
    assert paid["n"] == len(gamer.asked) > 0
    (told,) = rows(folder, "SELECT sum(cost_usd) usd FROM game_rounds")
    looks = rows(folder, "SELECT count(*) n FROM game_rounds WHERE is_new_look")[0]["n"] * 8 * 1e-6
    assert told["usd"] == pytest.approx(paid["usd"] + looks)
    first, second = past_rounds(ParquetStore(folder / STORE), "visitors")
    assert first.series == second.series == record.run_id
    assert len(first.look.rewards) == first.look.n_cases == 8


def test_the_estimate_holds_what_the_rounds_of_a_run_have_cost(whole, tmp_path):
    folder, gamer, _ = whole
    found = estimate(load(folder / "optimization.yaml"))
    (games,) = (one for one in found.roles if one.role == "game")
    assert (games.name, games.unknown) == ("scribe", None)
    assert games.calls.expected is not None
    assert games.calls.high is not None
    assert games.usd.high is not None
    assert 0 < games.calls.expected < games.calls.high
    assert len(gamer.asked) <= games.calls.high
    (paid,) = rows(folder, "SELECT sum(cost_usd) usd FROM attempts WHERE purpose = 'game'")
    assert 0.0 < paid["usd"] <= games.usd.high
    looks = found.roles[0].calls.high
    off = write_games(tmp_path, NOWHERE, KUHN | NIM, **EVERY_2 | {"society__games__every": None})
    plain = estimate(load(off))
    assert [one.role for one in plain.roles] == ["evaluation"]
    assert looks == (plain.roles[0].calls.high or 0) + 2 * 8, "two looks at eight held-out cases"


def test_the_report_of_the_run_tells_what_its_games_came_to(whole):
    folder, _, result = whole
    told = result.games
    assert told is not None
    (paid,) = rows(
        folder, "SELECT sum(n_plays) plays, sum(cost_usd) usd, count(*) n FROM game_rounds"
    )
    assert (told.n_rounds, told.n_plays, told.cost_usd) == (
        paid["n"], paid["plays"], pytest.approx(paid["usd"]),
    )  # fmt: skip
    assert [one.when for one in told.looks] == [
        "before round 1", "before round 2", "in the final test",
    ]  # fmt: skip
    first, second = past_rounds(ParquetStore(folder / STORE), "visitors")
    assert result.best is not None
    final = ParquetStore(folder / STORE).rows(FINAL, {"leader": result.best.candidate_id})
    assert second.after is not None
    assert second.after.rewards == {row["case_id"]: row["reward"] for row in final}
    measured = rounds_with_change([first, second], None)
    assert [one.round_number for one in measured] == [0, 1], "the last by the final test"
    known = {one.game: one for one in effects(measured)}
    for game in told.games:
        assert game.n_included <= game.n_on_offer == 2
        assert game.effect == (known[game.game].mean, *known[game.game].interval)
        assert (game.p_keep, game.verdict) == (known[game.game].p_keep, "on trial")
    lines = (
        f"2 rounds within the run: {told.n_plays} plays, {told.n_calls} replies of models",
        "The leader's mean reward on 8 held-out cases: ",
        f"{told.looks[-1].mean:.3f} in the final test.",
        "On trial: the coins are fair for the first 8 measured rounds.",
    )
    assert RunResult.from_json(result.to_json()).games == told
    page = " ".join(html.unescape(report_html(result)).split())
    for shown in (report_markdown(result), page):
        for line in lines:
            assert line in shown


def test_a_run_that_is_killed_inside_a_round_pays_nothing_twice_and_keeps_its_coins(
    whole, tmp_path
):
    folder, undisturbed, _ = whole
    (first,) = rows(folder, "SELECT sum(n_calls) n FROM game_plays WHERE round = 0")
    gamer, n = Gamer(), int(first["n"]) + 3
    with gamer.server() as server:
        config = write_games(tmp_path, server.url, KUHN | NIM, **EVERY_2)
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.games.game_worlds", "run", str(config)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        gamer.before_answer = lambda k: os.kill(child.pid, signal.SIGKILL) if k == n else None
        assert child.wait(timeout=60) == -signal.SIGKILL
        before = rows(tmp_path, ROUNDS)
        optimize(config)
    assert len(before) == 1, "the round that was under way is not visible"
    again = Counter(gamer.asked) - Counter(undisturbed.asked)
    assert sum(again.values()) <= 1, "the reply that was under way may be asked for again"
    assert not Counter(undisturbed.asked) - Counter(gamer.asked)
    for sql in (PLAYS, COINS, ROUNDS):
        assert rows(tmp_path, sql) == rows(folder, sql)
    assert len(ParquetStore(tmp_path / STORE).runs()) == 1
    twice = (
        "SELECT call_key FROM attempts WHERE state = 'done' GROUP BY call_key HAVING count(*) > 1"
    )
    assert rows(tmp_path, twice) == []


def test_rounds_alone_and_within_a_run_are_numbered_together_and_kept_apart(whole, tmp_path):
    with Gamer().server() as server:
        config = write_games(tmp_path, server.url, KUHN | NIM, **EVERY_2)
        play_round(config)
        optimize(config)
        report = play_round(config)
    store = ParquetStore(tmp_path / STORE)
    found = past_rounds(store, "visitors")
    assert [one.round_number for one in found] == [0, 1, 2, 3]
    assert [bool(one.series) for one in found] == [False, True, True, False]
    assert report.round_number == 3
    assert report.n_measured == 3, "each by the next look of its own: leader or champion"
    measured = rounds_with_change(found[:-1], report.look)
    assert [one.round_number for one in measured] == [0, 1, 2]
    assert report_of(store, latest_round(store, report.label)) == report
    assert report_of(store, latest_round(store, store.runs("visitors")[0].label)).round_number == 2


def test_a_round_within_a_run_keeps_to_its_share_and_the_run_goes_on(tmp_path):
    limits = {"budget__max_usd": 0.01, "society__games__max_share_usd": 0.02}
    with Gamer().server() as server:
        result = optimize(write_games(
            tmp_path, server.url, KUHN, **EVERY_2 | limits, society__games__max_tokens=16,
        ))  # fmt: skip
    assert result.status == "done"
    found = rows(tmp_path, ROUNDS)
    assert len(found) == 2
    for row in found:
        assert "the share of games in `budget.max_usd` is spent" in row["limit_reason"]
        assert row["limit_reason"].count("society.games.max_share_usd") == 1
        assert 0.0 <= row["cost_usd"] <= 0.01 * 0.02
    assert any(row["cost_usd"] for row in found)
    assert result.games is not None
    shown = report_markdown(result).replace("\\", "")
    for n, row in enumerate(found, 1):
        assert f". Round {n} ended early: {row['limit_reason'].rstrip('.')}." in shown
    n_void, n_lost = (
        sum(getattr(one, key) for one in result.games.games) for key in ("n_void", "n_lost")
    )
    assert n_void + n_lost > 0
    told = " and ".join(f"{n} {word}" for n, word in ((n_void, "void"), (n_lost, "lost")) if n)
    assert f"within the run: {result.games.n_plays} plays ({told}), " in shown
    assert f"In round {len(found)}, kuhn-poker was " in shown


@pytest.mark.skipif(bool(why_unavailable()), reason="programs cannot be run here")
def test_the_system_plays_as_the_leader_and_nobody_plays_it_before_there_is_one(tmp_path):
    broken = {"sums": {"file": "sums.py:Sums", "roles": {"incumbent": {"player": "system"}}}}
    keys = EVERY_2 | {
        "optimization__evolution": {"population_size": 3, "generations": 3},
        "evaluation__test_cases__holdout": 0,
        "optimization__seed": 7,
    }
    (tmp_path / "sums.py").write_text(GAME, encoding="utf-8")
    with Gamer(lambda *_: "2*3").server() as server:
        config = write_games(tmp_path, server.url, broken, **keys)
        (tmp_path / "target.py").write_text(TARGET, encoding="utf-8")
        with prepare_run(load(config)) as run, open_round_within(run) as opened:
            assert opened.take_look().mean is None
            (coin,) = opened.toss_coins()
            run.save("done")
        assert coin.off_reason == "no candidate has a reward yet, so none can play the system"
        optimize(config)
    with FeedbackStore(tmp_path / STORE) as feedback:
        found = proposed_for(load(config), feedback)
    assert [one.interaction.messages[0].content for one in found] == ["Calculate 2*3"]
