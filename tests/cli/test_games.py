"""``convergence games``: JSON, rounds in a row, what is refused."""

from pathlib import Path

import pytest

from tests.games.game_worlds import KUHN, NIM, Gamer, write_games
from tests.support.commands import Runner
from tests.support.stepped_runs import STORE


@pytest.fixture
def config(tmp_path: Path):
    """A project whose rounds are short."""
    with Gamer().server() as server:
        yield str(write_games(tmp_path, server.url, KUHN | NIM, society__games__plays=4))


def test_rounds_are_played_and_shown(cli: Runner, config: str, tmp_path: Path):
    done = cli("games", "run", config, "--rounds", "2", "--json")
    assert done.code == 0, done.err
    assert done.json["round"]["round_number"] == 1
    assert done.json["why"].keys() == {"kuhn-poker", "nim"}
    store = ("--store", str(tmp_path / STORE))
    played = next(g for g in done.json["round"]["games"] if g["n_played"])
    game = ("--game", played["coin"]["game"])
    shown = cli("games", "show", *store, "--json", *game, "--limit", "1")
    assert shown.json["round"] == done.json["round"]
    assert [play["game"] for play in shown.json["plays"]] == [played["coin"]["game"]]
    assert "No play of 'chess'" in cli("games", "show", *store, "--game", "chess").err
    refused = cli("resume", done.json["round"]["label"], *store)
    assert refused.code == 2
    assert "Run `convergence games run` again" in refused.err
    missing = cli("games", "show", "other", *store)
    assert (missing.code, "holds no finished round of games 'other'" in missing.err) == (2, True)


def test_a_round_ends_with_what_to_do_next_unless_it_is_to_be_quiet(cli: Runner, config: str):
    told = cli("games", "run", config, "--seed", "5").err
    assert "Its plays: convergence games show --game" in told
    assert told.rstrip().endswith("convergence export games")
    assert "Its plays" not in cli("games", "run", config, "--quiet").err
