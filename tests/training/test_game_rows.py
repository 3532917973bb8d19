"""Moves of games as training rows: only those that won, only of games that are kept, frozen with their round."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.feedback.records import Rating
from tasks.inputs.loader import load
from tasks.run import games_round
from tasks.store import ParquetStore
from tasks.store.feedback.feedback_store import FeedbackStore
from tasks.training import round as rounds
from tasks.training.adapter_checks import AdapterJudgement
from tasks.training.game_rows import training_rows_of_games
from tasks.training.jobs import TrainingJob, TrainingResult, TrainingRow
from tasks.training.marks import is_held_out_prompt
from tasks.training.round_settings import BaseModel
from tests.feedback.adapters import PASSED
from tests.feedback.answers import answer
from tests.games.game_worlds import KUHN, NIM, Gamer, play_round, write_games
from tests.support.writing_runs import STORE

P_KEEP = {"kuhn-poker": 0.9, "nim": 0.3}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A round in which the meta-critic is sure of one game, and would rather not play the other."""
    folder = tmp_path_factory.mktemp("games")
    with pytest.MonkeyPatch.context() as patch, Gamer().server() as server:
        patch.setattr(
            games_round, "p_keep_of", lambda _, names: {name: P_KEEP[name] for name in names}
        )
        report = play_round(write_games(folder, server.url, KUHN | NIM))
    assert {one.coin.game: one.n_played > 0 for one in report.games}["kuhn-poker"]
    return folder


def rows_of(project: Path, objective: Any, **more: Any) -> tuple[TrainingRow, ...]:
    loaded = load(project / "optimization.yaml")
    given: dict[str, Any] = {"held_out": 0.0, "most": 1_000} | more
    return training_rows_of_games(
        ParquetStore(project / STORE), loaded.configuration.api.name, objective, **given
    )


def scores_of(project: Path) -> dict[str, set[tuple[str, bool]]]:
    """Text → replies to it, each with whether its role won or was the solver."""
    found: dict[str, set[tuple[str, bool]]] = {}
    plays = ParquetStore(project / STORE).rows(
        "SELECT * FROM game_plays WHERE game = 'kuhn-poker' AND status = 'played'"
    )
    for play in plays:
        scores: Any = dict(play["scores"])  # type: ignore[call-overload]
        players = json.loads(str(play["players_json"]))
        for role, text, reply in json.loads(str(play["turns_json"])):
            others = [score for name, score in scores.items() if name != role]
            won = scores[role] > max(others) or players.get(role) == "solver"
            found.setdefault(text, set()).add((reply, won))
    return found


def test_moves_that_won_train_weighted_by_what_the_meta_critic_believes(project: Path):
    moves, rows = scores_of(project), rows_of(project, "kto")
    assert rows
    assert len({row.key for row in rows}) == len(rows)
    assert {(row.weight, row.target, row.rejected) for row in rows} == {(0.9, 1.0, None)}
    for row in rows:
        (asked,) = row.messages
        assert (row.response, True) in moves[asked["content"]]
    assert rows_of(project, "kto", most=2) == rows[:2]


def test_pairs_hold_what_won_and_what_lost_in_answer_to_one_text(project: Path):
    moves = scores_of(project)
    for row in rows_of(project, "dpo"):
        replies = moves[row.messages[0]["content"]]
        assert {(row.response, True), (row.rejected, False)} <= replies
        assert row.weight == 0.9


def test_held_out_prompts_do_not_train(project: Path):
    rows, half = rows_of(project, "kto"), rows_of(project, "kto", held_out=0.5)
    assert 0 < len(half) < len(rows)
    for row in rows:
        asked = [(one["role"], one["content"]) for one in row.messages]
        assert (row in half) == (not is_held_out_prompt(asked, 0.5))


def test_a_paused_round_goes_on_with_the_rows_it_began_with(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    jobs: list[TrainingJob] = []

    def train(job: TrainingJob, folder: Path, **_: Any) -> TrainingResult:
        jobs.append(job)
        return TrainingResult(adapter=None, n_steps=1, interrupted=True)

    base = BaseModel(name="tiny", files=None, names=("stand-in",))  # type: ignore[arg-type]
    monkeypatch.setattr(rounds, "run_training", train)
    monkeypatch.setattr(rounds, "base_model", lambda _: base)
    monkeypatch.setattr(rounds, "check_adapter", lambda *_a, **_k: AdapterJudgement(checks=(PASSED,), metrics=()))  # fmt: skip
    training = {"min_ratings": 5, "held_out": 0.5, "batch_size": 2, "objective": "kto"}

    def look(*, games: bool) -> rounds.RoundReport:
        keys = yaml.safe_load((project / "optimization.yaml").read_text("utf-8"))
        keys["feedback"] = {"training": training | {"games": games}}
        config = project / "training.yaml"
        config.write_text(yaml.safe_dump(keys), "utf-8")
        return rounds.train_role(load(config), feedback, "assistant")

    with FeedbackStore(tmp_path / "feedback") as feedback:
        for k in range(40):
            feedback.log(answer(f"a{k}", prompt=f"Question {k}?"))
            feedback.rate(
                Rating(interaction_id=f"a{k}", user_id="ann", thumbs=("up", "down")[k % 2])
            )
        assert look(games=True).status == "paused"
        rows = jobs[0].rows
        of_games = [row for row in rows if row.key.startswith("games ")]
        assert 0 < len(of_games) <= len(rows) / 2
        monkeypatch.setattr(rounds, "training_rows_of_games", lambda *_a, **_k: ())
        assert look(games=True).status == "paused"
        assert jobs[1].rows == rows
        assert look(games=False).status == "paused"
        assert jobs[2].rows == rows
