"""Sealed cases: nobody is asked them before they are opened, once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convergence_core.errors import ConfigurationError, LeaseHeldError
from convergence_core.games.held_out import HeldOutError
from convergence_core.search.recommend import paired_difference
from tasks.games.games_report import latest_round, report_of
from tasks.games.sealed_openings import sealed_results
from tasks.inputs.loader import load
from tasks.json_values import as_text
from tasks.report.games_section import opened_sentence
from tasks.run import sealed_set
from tasks.run.assessment import assess, open_assessment
from tasks.run.opener import prepare_run
from tasks.run.sealed_set import open_sealed, plan_opening
from tasks.store import ParquetStore
from tests.cli.conftest import cli as cli  # noqa: PLC0414 - the fixture
from tests.games.game_worlds import KUHN, Gamer, play_round, write_games
from tests.support.children import ROOT
from tests.support.commands import Runner
from tests.support.http_server import LoopbackServer
from tests.support.writing_runs import FUNCTION, PARENT, STORE, rows

BETTER = f"{PARENT} Answer with one of: positive, negative. <shots></shots>"
LEAK = '''
from convergence_core.games.game import Scores
from convergence_core.ports import Ask


class Leak:
    """Asks what it should not know."""

    id = "leak"
    version = 1
    roles = ("sayer",)
    cost = {{"sayer": 1}}
    feeds = "players"
    grounded = True

    def protocol(self, rng):
        yield Ask(role="sayer", text={text!r})
        return {{}}

    def score(self, turns, facts):
        return Scores(by_role={{"sayer": 1.0}})
'''


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with Gamer().server() as made:
        yield made


def write(folder: Path, server: LoopbackServer, default: str = PARENT, **keys: Any) -> Path:
    """Write a project with two prompts, eight held-out cases and half of them sealed."""
    parameter = {"type": "text", "variants": [PARENT, BETTER], "default": default}
    given = {"society__games__sealed_share": 0.5, "society__games__plays": 2,
             "search_space__parameters": {"system": parameter}, **keys}  # fmt: skip
    return write_games(folder, server.url, KUHN, **given)


def played(folder: Path, server: LoopbackServer, **keys: Any) -> Path:
    """Write it, play a round with the first prompt, and make the second one the default."""
    play_round(write(folder, server, **keys))
    return write(folder, server, BETTER, **keys)


def asked(folder: Path) -> set[str]:
    return {row["case_id"] for row in rows(folder, "SELECT DISTINCT case_id FROM evaluations")}


def test_nobody_is_asked_a_sealed_case_and_no_prompt_holds_one(tmp_path, server):
    config = write(tmp_path, server)
    loaded = load(config)
    sealed = {case.case_id for case in loaded.sealed_cases}
    assert (len(loaded.holdout_cases), len(sealed), len(loaded.search_cases)) == (4, 4, 16)
    assert sealed.isdisjoint(case.case_id for case in loaded.open_cases)
    held_out = {
        case.case_id
        for case in load(write(tmp_path, server, society__games__sealed_share=0)).holdout_cases
    }
    assert sealed < held_out, "the search keeps its cases"
    text = as_text(loaded.sealed_cases[0].input)
    (tmp_path / "leak.py").write_text(LEAK.format(text=f"Say {text}"), encoding="utf-8")
    games = {"leak": {"file": "leak.py:Leak"}}
    (game,) = play_round(
        write(tmp_path, server, society__games__games=games, optimization__seed=9)
    ).games
    assert (game.n_void, game.n_played) == (2, 0)
    assert "shares 13 words in a row with a held-out case" in next(iter(game.reasons))
    told = assess(open_assessment(load(config)))
    assert len(told.cases) == 20
    assert not told.unasked
    assert asked(tmp_path).isdisjoint(sealed)
    (stored,) = rows(tmp_path, "SELECT sealed FROM game_rounds")
    assert set(stored["sealed"]) == sealed


def test_they_are_opened_once_and_end_the_rounds(tmp_path, server, cli: Runner):
    config = played(tmp_path, server)
    sealed = [case.case_id for case in load(config).sealed_cases]
    before = cli("games", "list", config).out
    assert (
        "4 held-out cases are sealed: nobody is asked before `convergence games open`"
        in " ".join(before.split())
    )
    refused = cli("games", "open", config)
    assert (refused.code, "`--yes` must be given where nobody can be asked" in refused.err) == (
        2,
        True,
    )
    assert asked(tmp_path).isdisjoint(sealed)
    done = cli("games", "open", config, "--yes", "--json")
    assert done.code == 0, done.err
    found, left_out = done.json["opened"], done.json["left_out"]
    assert (found["case_ids"], found["n_compared"], left_out) == (sealed, 4, [])
    answers = rows(tmp_path, "SELECT candidate_id, case_id, reward FROM evaluations e JOIN runs r USING (run_id) "
                             "WHERE r.name = 'visitors.sealed'")  # fmt: skip
    by = {name: {row["case_id"]: row["reward"] for row in answers if row["candidate_id"] == name}
          for name in (found["first_id"], found["candidate_id"])}  # fmt: skip
    gap = paired_difference(by[found["candidate_id"]], by[found["first_id"]])
    assert gap is not None
    assert (found["difference"], found["low"], found["high"]) == pytest.approx(
        (gap.mean, gap.low, gap.high)
    )
    assert found["difference"] == pytest.approx(found["mean"] - found["first_mean"])
    for again in (cli("games", "open", config, "--yes"), cli("games", "run", config)):
        assert again.code == 2
        assert "the sealed cases were opened" in again.err
        assert "Begin anew with other held-out cases" in " ".join(again.err.split())
    with pytest.raises(HeldOutError, match="which ended the rounds"):
        prepare_run(load(write(tmp_path, server, BETTER, society__games__every=2)))
    assert len(sealed_results(ParquetStore(tmp_path / STORE), "visitors")) == 1
    store = ParquetStore(tmp_path / STORE)
    report = report_of(store, latest_round(store))
    assert report.opened is not None
    sentence = opened_sentence(report.opened)
    assert "4 sealed cases were opened after round 1" in sentence
    assert "95 % interval, paired by case" in sentence
    for shown in (cli("games", "show", "--store", tmp_path / STORE), cli("games", "list", config)):
        assert sentence in " ".join(shown.out.split())
    play_round(write(tmp_path, server, BETTER, society__games__sealed_share=0))


def test_what_cannot_be_compared_stays_sealed(tmp_path, server):
    config = write(tmp_path, server)
    with pytest.raises(HeldOutError, match="no round of games was played with these sealed cases"):
        plan_opening(load(config))
    play_round(config)
    with pytest.raises(
        HeldOutError, match="the incumbent is the configuration with which the rounds began"
    ):
        open_sealed(load(config))
    other = {"type": "text", "variants": [BETTER], "default": BETTER}
    gone = write(tmp_path, server, search_space__parameters={"system": other})
    with pytest.raises(HeldOutError, match=r"must be in the search space, but is not\. Put back"):
        open_sealed(load(gone))
    with pytest.raises(HeldOutError, match="no held-out case is sealed"):
        open_sealed(load(write(tmp_path, server, BETTER, society__games__sealed_share=0)))
    limited = load(write(tmp_path, server, BETTER, budget__max_calls=3))
    with pytest.raises(
        HeldOutError, match=r"Nothing was told, and the cases stay sealed.*larger budget"
    ):
        open_sealed(limited)
    assert sealed_results(ParquetStore(tmp_path / STORE), "visitors") == []
    assert open_sealed(load(write(tmp_path, server, BETTER))).n_compared == 4


def test_they_stay_sealed_while_a_run_plays_rounds(tmp_path, server):
    played(tmp_path, server)
    every = load(write(tmp_path, server, BETTER, society__games__every=2))
    with prepare_run(every) as run:
        run.save("running")
        with pytest.raises(HeldOutError, match=rf"run {run.record.label} is under way and plays"):
            plan_opening(every)
    assert plan_opening(every).case_ids, "one that was killed plays on only if it is resumed"
    with prepare_run(load(write(tmp_path, server, BETTER))) as run:
        run.save("running")
        assert open_sealed(every).n_compared == 4, "a run without rounds may go on"


def test_no_run_begins_while_they_are_opened(tmp_path, server, monkeypatch):
    every = load(write(tmp_path, server, BETTER, society__games__every=2))
    played(tmp_path, server)
    refused = []
    asked_once = sealed_set._trial

    def and_try_to_begin(*given: Any) -> Any:
        with pytest.raises(LeaseHeldError), prepare_run(every):
            pass
        refused.append(1)
        return asked_once(*given)

    monkeypatch.setattr(sealed_set, "_trial", and_try_to_begin)
    assert open_sealed(load(write(tmp_path, server, BETTER))).n_compared == 4
    assert len(refused) == 2


def test_a_sealed_case_that_was_asked_all_the_same_is_left_out(tmp_path, server):
    played(tmp_path, server)
    assess(open_assessment(load(write(tmp_path, server, society__games__sealed_share=0.2))))
    config = write(tmp_path, server, BETTER)
    plan, sealed = plan_opening(load(config)), load(config).sealed_cases
    assert (len(plan.case_ids), len(plan.seen), len(sealed)) == (2, 2, 4)
    assert {*plan.case_ids, *plan.seen} == {case.case_id for case in sealed}
    assert open_sealed(load(config)).case_ids == plan.case_ids


KILLED = """
import os
from pathlib import Path

here = Path(__file__).parent
answer = ask


def ask(system, text, **others):
    with (here / "calls.txt").open("a") as file:
        file.write(text + "\\n")
    if (here / "victim").exists() and len((here / "calls.txt").read_text().splitlines()) == 4:
        os.kill(int((here / "victim").read_text()), 9)
    return answer(system, text, **others)
"""
CHILD = """
import os, sys
from pathlib import Path
from tasks.run.sealed_set import open_sealed
from tasks.inputs.loader import load
from tasks.json_values import as_text

here = Path(sys.argv[1])
(here / "victim").write_text(str(os.getpid()))
open_sealed(load(here / "optimization.yaml"))
"""


def test_an_opening_that_is_killed_goes_on_and_asks_nothing_twice(tmp_path, server):
    keys: dict[str, Any] = {"optimization__execution__parallel_workers": 1}
    config = played(tmp_path, server, **keys)
    (tmp_path / "target.py").write_text(FUNCTION + KILLED, encoding="utf-8")
    (tmp_path / "calls.txt").write_text("", encoding="utf-8")
    child = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path)], check=False, timeout=60,
                           env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    assert child.returncode == -signal.SIGKILL
    (tmp_path / "victim").unlink()
    assert rows(tmp_path, "SELECT * FROM game_openings") == []
    found = open_sealed(load(config))
    assert found.n_compared == 4
    calls = (tmp_path / "calls.txt").read_text(encoding="utf-8").splitlines()
    assert 8 <= len(calls) <= 9 + 1, "what was under way may be asked again"
    runs = ParquetStore(tmp_path / STORE).runs("visitors.sealed")
    assert [run.status for run in runs] == ["done"]


def test_one_held_out_case_cannot_be_both(tmp_path, server):
    config = write(
        tmp_path, server, evaluation__test_cases={"path": "cases.json", "holdout": 0.04}
    )
    with pytest.raises(
        ConfigurationError, match=r"society\.games\.sealed_share.*needs two held-out cases"
    ):
        load(config)
