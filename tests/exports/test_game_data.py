"""Plays as data for trainers: only winners and solvers are learned from."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from convergence.__main__ import run
from convergence.cli.options import EXIT_NO
from convergence_core.games.game import Facts, PlayKey, Scores, Turn
from convergence_core.games.round_records import PlayRecord, PlayStatus
from convergence_core.ports import Ask
from tasks.games.game_data import GameForm, game_rows, has_won
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
        scores=Scores(by_role=scores), players=players,
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
    assert run(["export", "games", "--system", "nobody", "-o", "d.jsonl"]) == EXIT_NO
    assert "No play of a model is stored" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "d.jsonl").exists()
