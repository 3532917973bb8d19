"""The judge's game and the debate: answers of the run, each verdict counted once, trust that nobody can buy."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from convergence_core.judges.trust import Trust
from convergence_core.sao.played_items import PlayedItem, after_plays
from convergence_core.sao.state import SaoState
from tasks.games.round_rows import COINS_TAG
from tasks.inputs.loader import load
from tasks.run.games_opener import open_round_within
from tasks.run.games_round import GamesRound
from tasks.run.judged_plays import JudgedPlays
from tasks.run.opener import prepare_run, resume_run
from tasks.store import ParquetStore
from tests.games.game_worlds import EVERY_2, Gamer, play_round, write_games
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import (
    learner_of,
    planted_world,
    play_generation as play_preferring,
    write_preferring,
)
from tests.support.writing_runs import STORE, play_generation, rows

TARGET = """
import hashlib


def ask(system, text, warmth):
    label = "positive" if "good" in text or "great" in text else "negative"
    number = hashlib.sha256(f"{warmth}{text}".encode()).hexdigest()
    return label if int(number, 16) % 2 else f"Perhaps {label}, by {number[:6]}."
"""
BOTH: dict[str, Any] = {"judge": {}, "debate": {}}
KEYS = EVERY_2 | {
    "optimization__seed": 4,  # whose coins include both games when they are on offer
    "optimization__evolution": {"population_size": 6, "generations": 5},
    "society__games__plays": 60,
    "society__games__n_at_once": 8,
}
PLAYED = "SELECT * FROM game_plays WHERE status = 'played' ORDER BY round, game, position"


def honest(text: str, number: int) -> str:
    """Say what is right; as an advocate, a word."""
    first = re.search(r"\[\[BEGIN answer A \w+\]\]\n(.*?)\n\[\[END", text, re.DOTALL)
    if "probability that A is right" not in text:
        return "It is right."
    assert first is not None
    return json.dumps({"p": 0.1 if first[1].startswith("Perhaps") else 0.9})


def begun(folder: Path, url: str, games: dict[str, Any] = BOTH, **keys: Any) -> Path:
    """Write the project, its system answering each case in many wrong ways and one right one."""
    config = write_games(folder, url, games, **{**KEYS, **keys})
    (folder / "target.py").write_text(TARGET, encoding="utf-8")
    return config


def _played(opened: GamesRound) -> None:
    opened.take_look()
    opened.toss_coins()
    for one in opened.included:
        opened.play(one.game)
    opened.finish()


def one_round(
    folder: Path, answer: Callable[[str, int], str], games: dict[str, Any] = BOTH
) -> tuple[dict[str, str | None], SaoState]:
    """Play two rounds of a run; return why games were off in the second, and what was known before it."""
    with (
        Gamer(answer).server() as server,
        prepare_run(load(begun(folder, server.url, games))) as run,
    ):
        for generation in range(4):
            if generation == 2:
                with open_round_within(run) as opened:
                    _played(opened)
            play_generation(run)
        state, _ = JudgedPlays(run, is_within=True).after_plays()
        with open_round_within(run) as opened:
            _played(opened)
            off = {one.game: one.off_reason for one in opened.coins}
        play_generation(run)
        run.save("done")
    return off, state


@pytest.fixture(scope="module")
def believed(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, str | None], SaoState]:
    """A run whose judge is right about fifty answers."""
    folder = tmp_path_factory.mktemp("believed")
    return folder, *one_round(folder, honest)


def test_a_judge_that_is_right_about_executed_truth_is_believed_and_debates_begin(believed):
    folder, off, state = believed
    found = [one for one in rows(folder, PLAYED) if one["round"] == 0]
    assert {one["game"] for one in found} == {"judge"}, "debate was off before anybody was judged"
    items = [json.loads(one["facts_json"])["item"] for one in found]
    assert len(items) == len({*items}) == 50
    (record,) = ParquetStore(folder / STORE).runs()
    assert state.trust == Trust(n_right=50.0, n_items=50.0, n_different=50)
    assert state.played_to == 0
    assert off == {"judge": None, "debate": None}
    # What was fixed for the second round is that of its coins: other items first.
    fixed = json.loads(record.tags[COINS_TAG])
    assert fixed["round"] == 1
    assert len({*fixed["items"]}) == 50
    assert not {*fixed["items"]} & {*items}, "others first"
    for one in rows(folder, PLAYED):
        if one["round"] == 1:
            assert json.loads(one["facts_json"])["item"] == fixed["items"][one["position"]]


def test_a_round_that_was_left_goes_on_with_the_same_items_and_asks_nobody_twice(tmp_path: Path):
    gamer = Gamer(honest)
    with gamer.server() as server:
        with prepare_run(load(begun(tmp_path, server.url, {"judge": {}}))) as run:
            play_generation(run)
            play_generation(run)
            with open_round_within(run) as opened:
                opened.take_look()
                opened.toss_coins()
                opened.play("judge")  # and not finished: nothing of it is stored
            fixed = run.record.tags[COINS_TAG]
        n_asked = len(gamer.asked)
        assert n_asked == len({*gamer.asked}) == 100
        with resume_run(tmp_path / STORE, run.run_id) as run, open_round_within(run) as opened:
            opened.take_look()
            opened.toss_coins()
            opened.play("judge")
            opened.finish()
            play_generation(run)
            run.save("done")
        assert run.record.tags[COINS_TAG] == fixed
        assert len(gamer.asked) == n_asked
    found = rows(tmp_path, PLAYED)
    assert [json.loads(one["facts_json"])["item"] for one in found] == json.loads(fixed)["items"]


def test_before_any_answer_the_games_about_answers_are_off_with_the_reason(tmp_path: Path):
    with Gamer(honest).server() as server:
        report = play_round(begun(tmp_path, server.url, {"judge": {}}))
    (game,) = report.games
    assert game.coin.off_reason == (
        "there is no test case yet to which executed metrics found one answer right and another wrong"
    )


def test_a_round_of_verdicts_counts_once_and_older_ones_less():
    state = SaoState(limit=3)
    plays = [
        PlayedItem(round_number=number, item_id=name, log_score=score)
        for number, name, score in ((1, "a", -0.1), (1, "b", -0.6931471805599453), (4, "a", -4.6))
    ]
    found, audited = after_plays(state, plays, ["c"])
    assert found.trust == Trust(n_right=0.8 * 1.5, n_items=0.8 * 2 + 1, n_different=2)
    assert (found.played_to, audited) == (4, ("c", "a", "b"))
    assert after_plays(found, plays, audited)[0] == found
    again = SaoState.from_json(json.loads(json.dumps(found.to_json())), limit=3)
    assert after_plays(again, plays, ["c"])[0] == again, "nor after a resume"
    assert found.next_run(limit=3, n_personas=5, same_judge=False).played_to == -1


def test_the_next_round_of_preferences_holds_the_verdicts_of_games_once(tmp_path: Path):
    with planted_server(planted_world()) as server:
        config = write_preferring(
            tmp_path, server.url,
            society__games={"every": 1, "plays": 30, "games": {"judge": {}}},
            society__sao={"every": 2, "n_samples": 4, "n_personas": 24, "audit_items": 10},
            optimization={"seed": 4, "evolution": {"population_size": 6, "generations": 5},
                          "execution": {"max_retries": 0, "early_stopping": {"enabled": False}}},
        )  # fmt: skip
        with prepare_run(load(config)) as run:
            learner = learner_of(run)
            for _ in range(3):
                if run.is_due("games"):
                    with open_round_within(run) as opened:
                        _played(opened)
                play_preferring(run)
            run_id, state = run.run_id, learner.state
        plays = [one for one in learner.played() if one.round_number == 0]
        audits = rows(tmp_path, "SELECT item_id FROM preference_audits")
        assert (len(plays), state.played_to) == (30, 0)
        expected, _ = after_plays(SaoState(limit=3), plays, ())
        assert state.trust.n_items == pytest.approx(0.8 * expected.trust.n_items + len(audits))
        assert state.trust.n_different == len(
            {*(one.item_id for one in plays), *(str(row["item_id"]) for row in audits)}
        )
        with resume_run(tmp_path / STORE, run_id) as run:
            assert learner_of(run).state == state
            assert {one.item_id for one in plays} <= {*learner_of(run).history.audited} | {
                one.item_id for one in learner_of(run).played()
            }
