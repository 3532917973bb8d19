"""Plays as data for trainers: only winners and solvers are learned from."""

import asyncio
import importlib.util
import json
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from convergence.__main__ import run
from convergence.cli.options import EXIT_NO
from convergence_core.errors import ConfigurationError
from convergence_core.games.game import Facts, PlayKey, Turn
from convergence_core.games.round_records import PlayRecord, PlayStatus
from convergence_core.ports import Ask
from tasks.exports.verifiers_package import verifiers_rows, write_verifiers
from tasks.games import game_data, reasoning_tasks
from tasks.games.game_data import GameForm, game_rows, has_won
from tasks.games.reasoning_tasks import VerifierVerdict
from tests.games.game_worlds import KUHN, NIM, Gamer, play_round, write_games

BOTH = {"first": "m", "second": "m"}


def played(
    turns: list[tuple[str, str, str]],
    scores: dict[str, float],
    *,
    players: Mapping[str, str] = BOTH,
    status: PlayStatus = "played",
    facts: Facts | None = None,
) -> PlayRecord:
    return PlayRecord(
        game="g", version=1, key=PlayKey(run_seed=1, round_number=0, index=0), status=status,
        scores=scores, reason="", players=players,
        turns=tuple(Turn(Ask(role=role, text=text), reply) for role, text, reply in turns),
        facts=facts or {}, n_calls=1, cost_usd=None,
    )  # fmt: skip


WON = played(
    [("first", "Move?", "a1"), ("second", "Yours?", "b1")], {"first": 1.0, "second": -1.0}
)
LOST = played(
    [("first", "Move?", "a2"), ("second", "Yours?", "b2")], {"first": -1.0, "second": 1.0}
)


def replies(plays: list[PlayRecord]) -> list[str]:
    return [row["messages"][1]["content"] for row in game_rows(plays, GameForm.SFT)]


def test_winners_and_solvers_are_learned_from_and_nobody_else():
    assert replies([WON, LOST]) == ["a1", "b2"]
    solved = played(
        [("first", "Move?", "a1"), ("second", "Yours?", "b1")], {"first": 1.0, "second": -1.0},
        players={"first": "chance", "second": "solver"},
    )  # fmt: skip
    assert replies([solved]) == ["b1"]
    draw = played([("first", "Move?", "a1")], {"first": 0.0, "second": 0.0})
    void = played([("first", "Move?", "a1")], {}, status="void")
    lost = played([("first", "Move?", "a1")], {"first": 1.0, "second": 0.0}, status="lost")
    assert replies([draw, void, lost]) == []
    alone = [played([("solver", "?", str(s))], {"solver": s}) for s in (0.0, 0.99, 1.0)]
    assert replies(alone) == ["1.0"]
    assert not has_won(WON, "judge")


def test_pairs_answer_the_same_text_and_what_did_both_is_left_out():
    rows = list(game_rows([WON, LOST, WON], GameForm.DPO))
    assert [
        (r["prompt"][0]["content"], r["chosen"][0]["content"], r["rejected"][0]["content"])
        for r in rows
    ] == [
        ("Move?", "a1", "a2"),
        ("Yours?", "b2", "b1"),
    ]
    both = played([("first", "Move?", "a1")], {"first": -1.0, "second": 1.0})
    assert [r["role"] for r in game_rows([WON, LOST, both], GameForm.DPO)] == ["second"]


def test_tasks_with_a_verifier_become_prompts_once():
    facts: Facts = {
        "library": "reasoning-gym 0.1.25",
        "generator": "countdown",
        "seed": 7,
        "score": 1.0,
    }
    task = played([("solver", "Make 24.", "x")], {"solver": 1.0}, facts=facts)
    (row,) = game_rows([task, task, WON], GameForm.GRPO)
    assert row == {
        "prompt": [{"role": "user", "content": "Make 24."}],
        "task": "g",
        "info": {"library": "reasoning-gym 0.1.25", "generator": "countdown", "seed": 7},
    }


def task(generator: str = "countdown", version: str = "0.1.25") -> PlayRecord:
    facts: Facts = {"library": f"reasoning-gym {version}", "generator": generator, "seed": 7}
    return played([("solver", f"Do {generator}.", "x")], {"solver": 1.0}, facts=facts)


def test_an_environment_is_a_package_whose_rows_are_the_documented_columns(tmp_path: Path):
    folder = tmp_path / "our-tasks"
    rows = verifiers_rows([task(), task("lcm"), task(), WON])
    assert write_verifiers(rows, folder) == "our-tasks"
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
    assert project["project"]["name"] == "our-tasks"
    assert {"reasoning-gym==0.1.25", "verifiers>=0.1.8,<0.4"} < {
        *project["project"]["dependencies"]
    }
    package = folder / "our_tasks"
    written = [
        json.loads(line) for line in (package / "tasks.jsonl").read_text("utf-8").splitlines()
    ]
    assert [row["prompt"][0]["content"] for row in written] == ["Do countdown.", "Do lcm."]
    assert all(row.keys() == {"prompt", "answer", "info"} for row in written)
    # One type for all rows, as a dataset's columns have.
    assert {type(value) for row in written for name, value in row.items() if name != "prompt"} == {
        str
    }
    assert json.loads(written[1]["info"]) == {
        "game": "g", "library": "reasoning-gym 0.1.25", "generator": "lcm", "seed": 7,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["Tasks", "1st", "a b", "a--b", "täsk"])
def test_a_folder_that_is_no_packages_name_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ConfigurationError, match="named like a package"):
        write_verifiers(verifiers_rows([task()]), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_tasks_of_two_versions_are_no_environment(tmp_path: Path):
    with pytest.raises(
        ConfigurationError, match=r"one version .* 0\.1\.24, reasoning-gym 0\.1\.25"
    ):
        write_verifiers(verifiers_rows([task(), task("lcm", "0.1.24")]), tmp_path / "tasks")


class FakeLibrary:
    """Verdicts without the library, which the default suite does not install."""

    version = "0.1.25"

    def __init__(self, limit_s: float) -> None:
        self.asked: list[tuple[str, int, str]] = []

    def verdict(self, generator: str, seed: int, answer: str) -> VerifierVerdict:
        self.asked.append((generator, seed, answer))
        return VerifierVerdict(0.25)


def loaded(folder: Path, monkeypatch: pytest.MonkeyPatch, library: type) -> Any:
    """Return what the written module makes, with doubles of both packages."""
    made = SimpleNamespace
    verifiers = made(SingleTurnEnv=made, Rubric=lambda funcs: made(funcs=funcs))
    datasets = made(Dataset=made(from_list=list))
    monkeypatch.setitem(sys.modules, "verifiers", verifiers)
    monkeypatch.setitem(sys.modules, "datasets", datasets)
    monkeypatch.setattr(reasoning_tasks, "ReasoningLibrary", library)
    spec = importlib.util.spec_from_file_location(
        "our_tasks", folder / "our_tasks" / "__init__.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load_environment(system_prompt="Be short.")


def test_the_environments_reward_is_the_librarys_verdict_of_the_last_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_verifiers(verifiers_rows([task()]), tmp_path / "our-tasks")
    asked: list[tuple[str, int, str]] = []

    class Library(FakeLibrary):
        def __init__(self, limit_s: float) -> None:
            self.asked = asked

    found = loaded(tmp_path / "our-tasks", monkeypatch, Library)
    assert (len(found.dataset), found.system_prompt) == (1, "Be short.")
    (reward,) = found.rubric.funcs
    info = found.dataset[0]["info"]
    for completion, answer in (
        ([{"content": "no"}, {"content": "I think <answer>1+2</answer>"}], "1+2"),
        ([SimpleNamespace(content=" 3 ")], "3"),
        ([{"content": None}], ""),
        ([], ""),
    ):
        assert asyncio.run(reward(completion=completion, info=info)) == 0.25
        assert asked.pop() == ("countdown", 7, answer)
    assert asyncio.run(reward(completion=[], info=json.loads(info), answer="", state={})) == 0.25
    monkeypatch.setattr(Library, "version", "0.1.26")
    with pytest.raises(
        RuntimeError, match=r"of reasoning-gym 0\.1\.25; version 0\.1\.26 is installed"
    ):
        loaded(tmp_path / "our-tasks", monkeypatch, Library)


def test_a_round_is_exported_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with Gamer().server() as server:
        report = play_round(write_games(tmp_path, server.url, KUHN | NIM))
    monkeypatch.chdir(tmp_path)
    assert run(["export", "games", "-o", "a.jsonl"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text("utf-8").splitlines()]
    assert f"Wrote {len(rows)} rows" in capsys.readouterr().err.replace("\n", " ")
    assert {row["game"] for row in rows} == {"kuhn-poker", "nim"}
    assert all(row["player"] == "solver" or row["score"] > 0 for row in rows)
    assert "chance" not in {row["player"] for row in rows}
    assert run(["export", "games", "--game", "nim", "-f", "dpo", "-o", "b.jsonl"]) in {0, EXIT_NO}
    assert run(["export", "games", "-f", "grpo", "-o", "c.jsonl"]) == EXIT_NO
    assert f"None of {report.n_plays} plays gives a row" in capsys.readouterr().err.replace(
        "\n", " "
    )
    assert run(["export", "games", "-f", "csv"]) == 2
    assert run(["export", "games", "-f", "verifiers"]) == EXIT_NO
    monkeypatch.setattr(game_data, "stored_plays", lambda *_: [task()])
    capsys.readouterr()
    assert run(["export", "games", "-f", "verifiers", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "rows": 1, "folder": "convergence-games", "environment": "convergence-games",
    }  # fmt: skip
    assert (tmp_path / "convergence-games" / "convergence_games" / "tasks.jsonl").is_file()
    assert run(["export", "games", "-f", "verifiers", "-o", "again"]) == 0
    assert "pip install ./again" in capsys.readouterr().err.replace("\n", " ")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert run(["export", "games", "--system", "nobody", "-o", "d.jsonl"]) == EXIT_NO
    assert "No play of a model is stored" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "d.jsonl").exists()
