"""The judge's game and the debate: answers of a run, trust that nobody can buy."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from convergence_core.judges.trust import Trust
from convergence_core.sao.played_items import PlayedItem, after_plays
from convergence_core.sao.state import SaoState
from tasks.games.round_rows import COINS_TAG
from tasks.inputs.loader import load
from tasks.run.games_opener import open_games_round, play_games
from tasks.run.judged_plays import JudgedPlays
from tasks.run.opener import prepare_run
from tests.games.game_worlds import Gamer, play_round, write_games
from tests.support.stepped_runs import play_generation
from tests.support.writing_runs import PARENT, rows

TARGET = """
import hashlib


def ask(system, text, warmth):
    label = "positive" if "good" in text or "great" in text else "negative"
    number = hashlib.sha256(f"{warmth}{text}".encode()).hexdigest()
    return label if int(number, 16) % 2 else f"Perhaps {label}, by {number[:6]}."
"""
BOTH: dict[str, Any] = {"judge": {}, "debate": {}}
KEYS: dict[str, Any] = {
    "optimization__seed": 4,
    "search_space__parameters": {
        "system": {"type": "text", "variants": [PARENT], "default": PARENT, "mutate": True},
        "warmth": {"type": "float", "min": 0.0, "max": 1.0, "default": 0.5},
    },
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


def answered(config: Path) -> None:
    """Let a run of two generations answer the test cases."""
    with prepare_run(load(config)) as run:
        play_generation(run)
        play_generation(run)
        run.save("done")


@pytest.mark.slow
def test_a_judge_that_is_right_about_executed_truth_is_believed_and_debates_begin(tmp_path: Path):
    with Gamer(honest).server() as server:
        config = begun(tmp_path, server.url)
        answered(config)
        first, second = play_round(config), play_round(config)
        with open_games_round(load(config)) as opened:
            state, audited = JudgedPlays(opened.run).after_plays()
            opened.plan()
            fixed = json.loads(opened.run.record.tags[COINS_TAG])
    plays = [play for play in rows(tmp_path, PLAYED) if play["round"] == 0]
    assert {play["game"] for play in plays} == {"judge"}, (
        "debate was off before anybody was judged"
    )
    items = [json.loads(play["facts_json"])["item"] for play in plays]
    assert len(items) == len({*items}) == 50
    assert {*items} <= {*audited}
    assert state.trust.n_different >= 50
    assert state.trust.is_enabled
    off = [
        {game.coin.game: game.coin.off_reason for game in report.games}
        for report in (first, second)
    ]
    assert off[0]["debate"] is not None
    assert off[1] == {"judge": None, "debate": None}
    # Items that the judge was tried on come last.
    assert fixed["round"] == 2
    seen = {json.loads(play["facts_json"])["item"] for play in rows(tmp_path, PLAYED)}
    assert not {*fixed["items"]} & seen or len(seen) > 50


@pytest.mark.slow
def test_a_round_that_was_left_goes_on_with_the_same_items_and_asks_nobody_twice(tmp_path: Path):
    gamer = Gamer(honest)
    with gamer.server() as server:
        config = begun(tmp_path, server.url, {"judge": {}})
        answered(config)
        with open_games_round(load(config)) as opened:
            opened.plan()
            opened.play("judge")  # and not finished: nothing of it is stored
            fixed = opened.run.record.tags[COINS_TAG]
        n_asked = len(gamer.asked)
        assert n_asked == len({*gamer.asked}) == 100
        with open_games_round(load(config)) as opened:
            play_games(opened)
            assert opened.run.record.tags[COINS_TAG] == fixed
        assert len(gamer.asked) == n_asked
    found = rows(tmp_path, PLAYED)
    assert [json.loads(one["facts_json"])["item"] for one in found] == json.loads(fixed)["items"]


def test_before_any_answer_the_games_about_answers_are_off_with_the_reason(tmp_path: Path):
    with Gamer(honest).server() as server:
        report = play_round(begun(tmp_path, server.url, {"judge": {}}))
    (game,) = report.games
    assert game.coin.off_reason == (
        "no test case yet has one answer that executed metrics found right and another that they found wrong"
    )


def test_older_rounds_of_verdicts_count_less():
    state = SaoState(limit=3)
    plays = [
        PlayedItem(round_number=number, item_id=name, log_score=score)
        for number, name, score in ((1, "a", -0.1), (1, "b", -0.6931471805599453), (4, "a", -4.6))
    ]
    found, audited = after_plays(state, plays, ["c"])
    assert found.trust == Trust(n_right=0.8 * 1.5, n_items=0.8 * 2 + 1, n_different=2)
    assert audited == ("c", "a", "b")
