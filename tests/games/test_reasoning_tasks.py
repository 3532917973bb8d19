"""Tasks of reasoning-gym: the audit, verdicts equal to the library's, hostile answers."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from convergence.__main__ import run
from convergence_core.errors import ConfigurationError
from convergence_core.games.contract import FixedPlayer, broken_rules
from convergence_core.games.game import PlayKey
from convergence_core.games.play import play
from tasks.games import reasoning_audits, reasoning_tasks
from tasks.games.configured_games import check_user_games
from tasks.games.games_report import latest_round
from tasks.games.line_process import LineProcess
from tasks.games.reasoning_audits import stored_audit
from tasks.games.reasoning_child import EvaluationGuard, UnsafeAnswerError, is_plain_formula
from tasks.games.reasoning_tasks import (
    AUDIT_VERSION,
    HOSTILE,
    MOST_ANSWER,
    ReasoningGame,
    ReasoningLibrary,
    answer_of,
    audit,
    why_missing,
)
from tasks.games.round_rows import plays_of_run
from tasks.inputs.loader import load
from tasks.run.games_opener import listed_games
from tasks.store.tables.learner_tables import TASK_AUDITS
from tasks.store.tables.parquet_store import ParquetStore
from tests.games.game_worlds import NIM, Gamer, play_round, write_games
from tests.support.stepped_runs import STORE

needs_library = pytest.mark.skipif(bool(why_missing()), reason=why_missing())
KNOWN_BAD = {
    "composite",
    "game_of_life_halting",
    "knight_swap",
    "letter_jumble",
    "list_functions",
    "prime_factorization",
    "spell_backward",
}
# The library alone, without our guard, in another process: generator, seed, answer -> score.
VERIFIER = """
import json, sys
import reasoning_gym
scores, made = [], {}
for name, seed, answer in json.load(sys.stdin):
    if (name, seed) not in made:
        one = reasoning_gym.create_dataset(name, seed=seed, size=1)
        made = {(name, seed): (one, one[0])}
    one, entry = made[name, seed]
    try:
        scores.append(one.score_answer(answer, entry))
    except Exception:
        scores.append(0.0)
print("\\n" + json.dumps(scores, default=float))
"""


def test_without_the_extra_one_sentence_names_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    assert run(["games", "audit"]) != 0
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"pip install -e '.+\[games\]'", said)
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "().__class__",
        "x.y",
        "[1]",
        "lambda: 1",
        "exit()",
        "9**9**9",
        "2**(3**4)",
        "2**99999",
        "factorial(9999)",
        "(" * 60,
        "\x00",
    ],
)
def test_other_texts_are_not(text: str):
    assert not is_plain_formula(text)


def test_only_literals_and_the_items_own_texts_are_evaluated():
    guard = EvaluationGuard()
    guard.open({"answer": "2 + 3", "metadata": {"parts": ["max(1, 2)"]}})
    assert guard.literal("[1, 'a']") == [1, "a"]
    assert (guard.literal("2 + 3"), guard.literal("max(1, 2)")) == (5, 2)
    assert not guard.refused
    for text in ("max(1, 3)", "[" * 5_000, "().__class__"):
        with pytest.raises(UnsafeAnswerError):
            guard.literal(text)
    assert guard.refused


def test_what_touches_the_machine_is_refused_while_an_answer_is_scored(tmp_path: Path):
    guard = EvaluationGuard()
    guard.hook("os.system", ("true",))  # nothing is scored yet
    guard.open({})
    for event, argument in [
        ("os.system", "true"),
        ("subprocess.Popen", "true"),
        ("socket.connect", ""),
        ("open", str(tmp_path / "any")),
    ]:
        with pytest.raises(PermissionError):
            guard.hook(event, (argument, "r"))


@needs_library
@pytest.mark.slow  # 106 generators
def test_the_audit_rejects_what_is_known_to_be_bad_and_admits_the_rest():
    found = dict(audit(limit_s=120.0))  # none hangs: a busy machine must reject no more
    rejected = {name for name, reason in found.items() if reason}
    assert rejected >= KNOWN_BAD
    assert len(found) - len(rejected) >= 85
    # The same plays, 1,000 or more, by the library itself.
    asked, ours = [], []
    with ReasoningLibrary() as library:
        games = [ReasoningGame(library, name) for name, reason in found.items() if not reason]
        for game, index in itertools.product(games, range(2)):
            key = PlayKey(run_seed=3, round_number=0, index=index)
            seed = cast("int", play(game, {"solver": FixedPlayer("")}, key).facts["seed"])
            right = str(library.item(game.generator, seed).answer)
            for reply in (right, "I do not know.", right[:-1], f"{right} 1", "[1, 2]", "0"):
                ours.append(play(game, {"solver": FixedPlayer(reply)}, key).scores)
                asked.append([game.generator, seed, answer_of(reply)])
    assert len(asked) >= 1_020
    done = subprocess.run(
        [sys.executable, "-c", VERIFIER],
        input=json.dumps(asked),
        env={"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = json.loads(done.stdout.splitlines()[-1])
    assert [(a, s.by_role["solver"]) for a, s in zip(asked, ours, strict=True)] == [
        (a, score) for a, score in zip(asked, theirs, strict=True)
    ]


@needs_library
@pytest.mark.slow  # starts the library
def test_hostile_answers_score_nothing_and_games_keep_the_contract(tmp_path: Path):
    touched = tmp_path / "touched"
    code = f"__import__('pathlib').Path({str(touched)!r}).touch()"
    with ReasoningLibrary() as library:
        for name in ("countdown", "puzzle24", "n_queens", "spiral_matrix", "simple_integration"):
            for answer in (*HOSTILE, code, f"[{code}]", "1" * (MOST_ANSWER + 1), "a" * 1_000_000):
                assert library.verdict(name, 5, answer).score <= 0.05, (name, answer[:30])
        assert "plain formula" in library.verdict("puzzle24", 5, code).reason
        assert broken_rules(ReasoningGame(library, "puzzle24")) == []
        item = library.item("countdown", 5)
        library.close()  # started again when it is asked
        assert library.item("countdown", 5) == item
        library.limit_s = 0.0
        assert library.verdict("countdown", 5, item.answer).has_hung
        library.limit_s = 20.0
        assert library.verdict("countdown", 5, item.answer).score == 1.0
    assert not touched.exists()
    assert list(audit(["countdown"], n_seeds=1)) == [("countdown", "")]


ADMITTED = {"roles": {"solver": {"player": "chance"}}}


def remembered(path: Path, **reasons: str) -> None:
    """Store an audit of a library that has no other generators."""
    rows = [
        {
            "package": "reasoning-gym", "version": "9.9", "audit": AUDIT_VERSION, "generator": name,
            "n_seeds": 3, "is_admitted": not reason, "reason": reason or None,
            "n_generators": len(reasons), "audited_at": 1,
        }
        for name, reason in reasons.items()
    ]  # fmt: skip
    ParquetStore(path).add_rows(TASK_AUDITS, rows, 1)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """A library of version 9.9 that is not to be started."""

    def refuse(*_: object, **__: object):
        raise AssertionError("nothing is to be tried")

    monkeypatch.setattr(reasoning_tasks, "why_missing", lambda: "")
    monkeypatch.setattr(reasoning_audits, "why_missing", lambda: "")
    monkeypatch.setattr(reasoning_tasks, "installed_version", lambda: "9.9")
    monkeypatch.setattr(reasoning_audits, "installed_version", lambda: "9.9")
    for module, name in (
        (reasoning_audits, "audit"), (reasoning_audits, "generator_names"),
        (LineProcess, "start"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, refuse)


@pytest.mark.usefixtures("installed")
def test_what_is_stored_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def printed(*words: str) -> str:
        capsys.readouterr()
        assert run(["games", *words]) == 0
        return capsys.readouterr().out

    remembered(tmp_path / STORE, countdown="", spell_backward="it pays for junk")
    found = json.loads(printed("audit", "--store", str(tmp_path / STORE), "--json"))
    assert found == {
        "version": "9.9", "admitted": ["countdown"], "rejected": {"spell_backward": "it pays for junk"},
    }  # fmt: skip
    config = str(
        write_games(tmp_path, "http://127.0.0.1:9", {"reasoning-spell-backward": ADMITTED} | NIM)
    )
    listed = printed("list", config)
    listed = " ".join(listed.split())
    assert "Real tasks: 1 of 2 generators of reasoning-gym 9.9 can be played." in listed
    assert "rejects it: it pays for junk" in listed
    assert json.loads(printed("list", config, "--json"))["real_tasks"]["n_generators"] == 2
    # Another version of the package, or of the audit, knows nothing of it; nor do ten seeds of three.
    path, remaining = tmp_path / STORE, stored_audit(tmp_path / STORE, 10)
    assert (dict(remaining.rejected), remaining.is_whole) == (
        {"spell_backward": "it pays for junk"},
        False,
    )
    monkeypatch.setattr(reasoning_audits, "AUDIT_VERSION", AUDIT_VERSION + 1)
    assert not stored_audit(path).audits
    monkeypatch.undo()


@pytest.mark.usefixtures("installed")
def test_a_rejected_generator_is_off_and_an_unknown_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    remembered(tmp_path / STORE, spell_backward="it pays for junk", countdown="")
    with Gamer().server() as server:
        config = write_games(tmp_path, server.url, {"reasoning-spell-backward": ADMITTED} | NIM)
        report = play_round(config)
    off = next(one.coin for one in report.games if one.coin.game == "reasoning-spell-backward")
    assert off.off_reason == "the audit of reasoning-gym 9.9 rejects it: it pays for junk"
    assert {play.game for play in plays_of_run(ParquetStore(tmp_path / STORE),
            latest_round(ParquetStore(tmp_path / STORE)).run_id)} <= {"nim"}  # fmt: skip
    monkeypatch.setattr(reasoning_audits, "generator_names", lambda: ("countdown",))
    for name, fix in (
        ("reasoning-countdwn", "Write `reasoning-countdown`"),
        ("reasoning-x", "countdown."),
    ):
        write_games(tmp_path, server.url, {name: ADMITTED} | NIM)
        with pytest.raises(ConfigurationError, match=f"society.games.games.{name}") as caught:
            listed_games(load(config))
        assert fix in str(caught.value)
        with pytest.raises(ConfigurationError, match=f"society.games.games.{name}"):
            check_user_games(load(config))


@needs_library
@pytest.mark.slow  # starts the library three times
def test_a_real_task_is_played_by_name_and_ends_its_process(tmp_path: Path):
    remembered(tmp_path / STORE, countdown="")  # of another version: it is audited
    with Gamer(lambda *_: "<answer>1</answer>").server() as server:
        config = write_games(
            tmp_path, server.url, {"reasoning-countdown": {}}, society__games__plays=4
        )
        report = play_round(config)
    (game,) = report.games
    assert (game.n_played, game.scores[0].role) == (4, "solver")
    assert stored_audit(tmp_path / STORE).admitted == ("countdown",)
    children = [one.read_text() for one in Path("/proc/self/task").glob("*/children")]
    names = [Path(f"/proc/{pid}/cmdline").read_text() for one in children for pid in one.split()]
    assert not any("reasoning_child" in name for name in names)
