"""Rules of ``society.games``: what can do nothing is refused by its key."""

from typing import Any

import pytest

from convergence_core.config import parse_mapping
from tests.config.test_rules_of_society import LLM
from tests.support.config_examples import MINIMAL, edited, problems_of

PLAYING = edited({"llm": LLM, "society": {"games": {"plays": 8}}}, MINIMAL)


def game(name: str = "nim", **fields: Any) -> dict[str, Any]:
    return {"society/games/games": {name: fields}}


def test_games_need_no_society_that_is_enabled():
    found = parse_mapping(PLAYING).society
    assert not found.enabled
    assert found.games.asks_llm(if_unknown=False)
    assert (found.games.enabled, found.games.max_share_usd) == (False, 0.1)
    both = {"first": {"player": "chance"}, "second": {"player": "solver"}}
    alone = edited({"society": {"games": {"games": {"nim": {"roles": both}}}}}, MINIMAL)
    assert not parse_mapping(alone).society.games.asks_llm(if_unknown=False)


@pytest.mark.parametrize(
    ("change", "key", "rule"),
    [
        (game("chess"), "society.games.games.chess", "must be a built-in game (kuhn-poker, nim"),
        (game(file="g.py:G"), "society.games.games.nim", "must differ from the names"),
        (game(roles={"third": {}}), "society.games.games.nim.roles.third", "must be a role of the game"),
        (game("g", file="g.py:G", roles={"sandbox": {}}), "society.games.games.g.roles.sandbox",
         "it runs programs"),
        (game("g", file="g.py:G", roles={"one": {"player": "solver"}, "two": {}}),
         "society.games.games.g.roles.one.player", "only solved games have a solver"),
        (game(roles={"first": {"player": "chance", "persona": "A cat."}}),
         "society.games.games.nim.roles.first.persona", "has no effect with `player: chance`"),
        (game("reasoning-countdown", roles={"first": {}}), "society.games.games.reasoning-countdown.roles.first",
         "must be a role of the game: solver"),
        ({"storage": {"keep_text": False}}, "storage.keep_text", "must be true with `society.games`"),
        ({"society/games": {"plays": 0}}, "society.games.plays", "at least 1"),
        ({"society/games": {"plays": 3}}, "society.games.plays", "at least the number of games, 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_played_is_refused_by_its_key(change, key, rule):
    problems = problems_of(change, PLAYING)
    assert [problem.key for problem in problems] == [key]
    assert rule in problems[0].rule


def test_real_tasks_are_known_by_their_names_and_have_no_solver():
    assert parse_mapping(edited(game("reasoning-countdown"), PLAYING)).society.games.asks_llm(
        if_unknown=False
    )
    solver = {
        "society": {
            "games": {"games": {"reasoning-lcm": {"roles": {"solver": {"player": "solver"}}}}}
        }
    }
    (problem,) = problems_of(solver, MINIMAL)
    assert problem.key == "society.games.games.reasoning-lcm.roles.solver.player"
    assert "only solved games have a solver" in problem.rule


def test_models_need_an_llm():
    problems = problems_of({"society": {"games": {"plays": 8}}}, MINIMAL)
    assert [(one.key, one.rule) for one in problems] == [
        ("llm", "is required by `society.games`: models play")
    ]
