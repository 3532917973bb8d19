"""The page on language games: its programs run as printed, and its table is that of the games."""

import re
import sys
from pathlib import Path

from convergence_core.games.critic_game import CriticGame
from convergence_core.games.judge_games import DebateGame, JudgeGame
from convergence_core.games.prompt_game import PromptGame
from convergence_core.games.registry import solved_games
from convergence_core.games.search_games import ExploreGame, PredictGame
from tests.docs.test_documents import ROOT, blocks, in_shell

PAGE = (ROOT / "docs/games.md").read_text(encoding="utf-8")


def printed(code: str, folder: Path) -> list[str]:
    (folder / "example.py").write_text(code, encoding="utf-8")
    return in_shell(f"PYTHONPATH={ROOT} {sys.executable} example.py", folder).splitlines()


def test_the_examples_print_what_the_page_says_of_them(tmp_path: Path):
    poker, execution, critic, own = blocks(PAGE, "python")
    (played,) = printed(poker, tmp_path)
    assert played.startswith("-0.0555")
    assert "'first'" in played
    added, network, files = printed(execution, tmp_path)
    assert (added, "the network" in network, "files" in files) == ("5", True, True)
    sound, scores = printed(critic, tmp_path)
    assert sound == "''"
    assert "{'critic': 1.0}" in scores
    assert printed(own, tmp_path) == ["It keeps the contract."]


def test_the_table_names_every_game_with_what_it_feeds():
    rows = re.findall(r"^\| (`.*?) \| .* \| `(\w+)` \| (yes|no) \|$", PAGE, re.MULTILINE)
    listed = {
        name: (feeds, grounded == "yes")
        for names, feeds, grounded in rows
        for name in re.findall(r"`([\w-]+)`", names)
    }
    games = {game.id: (game.feeds, game.grounded) for game in solved_games()}
    for kind in (PredictGame, ExploreGame, CriticGame, JudgeGame, DebateGame, PromptGame):
        games[kind.id] = (kind.feeds, kind.grounded)
    assert listed == games
