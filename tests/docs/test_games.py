"""The page on language games: its programs run as printed, and its table is that of the games."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from convergence_core.games.judge_games import DebateGame, JudgeGame
from convergence_core.games.registry import solved_games
from tasks.games.reasoning_tasks import why_missing
from tests.docs.test_documents import ROOT, blocks, in_shell

PAGE = (ROOT / "docs/games.md").read_text(encoding="utf-8")


def printed(code: str, folder: Path) -> list[str]:
    (folder / "example.py").write_text(code, encoding="utf-8")
    return in_shell(f"PYTHONPATH={ROOT} {sys.executable} example.py", folder).splitlines()


def test_the_example_of_a_game_prints_what_the_page_says_of_it(tmp_path: Path):
    (code,) = blocks(PAGE, "python")
    assert printed(code, tmp_path) == ["It keeps the contract."]


@pytest.mark.slow  # starts the library six times
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
def test_real_tasks_are_audited_and_played_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from convergence.__main__ import run

    monkeypatch.chdir(tmp_path)

    (command,) = [block for block in blocks(PAGE, "sh") if "games audit" in block]
    assert run(shlex.split(command)[1:]) == 0
    shown = capsys.readouterr().out
    assert "0.1.25: 1 of 3 generators admitted" in shown
    assert "the verifier raised ValueError" in " ".join(shown.split())


def test_the_table_names_every_game_with_what_it_feeds():
    rows = re.findall(r"^\| (`.*?) \| .* \| `(\w+)` \| (yes|no) \|$", PAGE, re.MULTILINE)
    listed = {
        name: (feeds, grounded == "yes")
        for names, feeds, grounded in rows
        for name in re.findall(r"`([\w-]+)`", names)
    }
    games = {game.id: (game.feeds, game.grounded) for game in solved_games()}
    for kind in (JudgeGame, DebateGame):
        games[kind.id] = (kind.feeds, kind.grounded)
    assert listed == games


def test_a_newcomers_round_prints_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from convergence.__main__ import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["init", "my-bot", "--template", "chat"]) == 0
    monkeypatch.chdir(tmp_path / "my-bot")
    with Path("optimization.yaml").open("a", encoding="utf-8") as file:
        file.write("\n" + blocks(PAGE, "yaml")[0])
    (commands,) = [block for block in blocks(PAGE, "sh") if "games run" in block]
    (query,) = [block for block in blocks(PAGE, "sh") if "game_plays" in block]
    printed = {}
    for line in [*commands.splitlines(), *query.splitlines()]:
        capsys.readouterr()
        assert run(shlex.split(line)[1:]) == 0, line
        printed[shlex.split(line)[1:][1]] = capsys.readouterr().out
    assert "first: gpt-4o-mini, second: solver" in printed["list"]
    for word in (
        "Language games",
        "kuhn-poker was given 8 plays",
        "Means over plays",
        "solver",
    ):
        assert word in printed["run"]
    assert printed["show"].strip().startswith(printed["run"].strip())
    assert "first gets: Nim" in printed["show"]
    assert (
        "played"
        in printed[
            "select game, status, count(*) as plays, sum(cost_usd) as usd from game_plays group by all"
        ]
    )
