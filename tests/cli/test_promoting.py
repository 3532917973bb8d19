"""From a run to production: the gate at its end, adoption, rollback, the list of looks."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convergence_core.result.run_result import LACK_TAG
from tasks.models.text_embedder import NAME, is_installed
from tasks.run.adoption import champion_tags
from tasks.serving.offers import offer_of
from tasks.store.runtime.promotions import (
    champion_of,
    champions,
    looks,
    looks_before,
    previous_champion,
    save_look,
    set_champion,
)
from tasks.store.runtime.rows import Champion, GateLook
from tasks.store.runtime.runtime_store import RuntimeStore
from tests.support.commands import Runner
from tests.support.configurations import loaded
from tests.support.optimizations import write_project
from tests.support.searching import put_into_production

pytestmark = pytest.mark.prefect

CASES = [{"id": f"c{n:03d}", "input": {"n": n}, "expected": None} for n in range(60)]
SMALL = {"optimization__evolution": {"population_size": 4, "generations": 2}}


def optimized(folder: Path, cli: Runner, **overrides: object) -> dict[str, Any]:
    tree = {**SMALL, **overrides}
    config = write_project(folder, **tree)
    done = cli("optimize", config, "--json")
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def with_holdout(folder: Path, holdout: float = 0.5) -> dict[str, object]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "many.json").write_text(json.dumps(CASES))
    return {"evaluation__test_cases": {"path": "many.json", "holdout": holdout}}


def _rolled_back_to_the_defaults(
    cli: Runner, first: Mapping[str, Any], told: Mapping[str, Any]
) -> None:
    back = cli("rollback", "known", "--yes", "--json")
    assert back.code == 0, back.err
    assert json.loads(back.out)["params"] == first["baseline"]["params"], "as the guard does"
    arms = cli("arms", "list", "known", "--json").json
    retired = {arm["arm_id"]: arm["retired"] for arm in arms["arms"]}
    assert retired == {told["arm_id"]: True, told["watched_against"]: False}
    nothing = cli("rollback", "known", "--yes")
    assert nothing.code == 2
    assert "other than the defaults" in nothing.err


def test_a_run_is_judged_adopted_kept_and_rolled_back(here: Path, cli: Runner):
    first = optimized(here, cli, **with_holdout(here))
    gate = first["gate"]
    assert isinstance(gate, dict)
    assert gate["opponent"] == "default"
    assert gate["decision"] == "promote", gate
    assert gate["low"] > 0
    report = cli("report", first["label"]).out
    assert "Better than the defaults: +" in report
    assert f"convergence promote {first['label']}" in report

    assert "Routing by case would earn nothing that these cases can show" in report
    unrouted = cli("arms", "route", first["label"])
    assert unrouted.code == 100
    assert "would earn nothing" in unrouted.err

    refused = cli("promote", first["label"])
    assert refused.code == 2
    assert "--yes" in refused.err
    adopted = cli("promote", first["label"], "--yes", "--json")
    assert adopted.code == 0, adopted.err
    winner = first["winner"]
    assert isinstance(winner, dict)
    report = cli("report", first["label"]).out
    assert "It is the champion now." in report
    assert "convergence promote" not in report
    told = json.loads(adopted.out)
    assert told["params"] == winner["params"]
    assert told["arm_id"] == winner["candidate_id"]
    arms = cli("arms", "list", "known", "--json").json
    assert [guard["decision"] for guard in arms["guards"]] == ["watching"]
    on_offer = {arm["arm_id"]: arm for arm in arms["arms"]}
    assert set(on_offer) == {told["arm_id"], told["watched_against"]}
    assert on_offer[told["arm_id"]]["prior"]["weight"] > 0
    assert "already" in cli("promote", first["label"], "--yes").err

    # The next run meets the champion: another seed, and the same system.
    second = optimized(here, cli, optimization__seed=5, **with_holdout(here))
    gate = second["gate"]
    if gate is not None:  # another candidate than the champion was handed over
        assert isinstance(gate, dict)
        assert gate["opponent"] == "champion"
        assert gate["opponent_id"] == winner["candidate_id"]
    code = cli("promote", second["label"], "--yes").code
    promotes = gate is not None and gate["decision"] == "promote"
    assert code == (0 if promotes else 100)

    listed = json.loads(cli("gates", "--json").out)
    assert listed["looks"][0]["decision"] == "promote"
    assert listed["champions"]["known"] is not None
    assert listed["guards"][0]["steps"] == [0.05, 0.25, 0.5]
    assert "Champion of known" in cli("gates").out
    if not promotes:
        _rolled_back_to_the_defaults(cli, first, told)


@pytest.mark.slow
def test_linear_arms_have_no_ramp(here: Path, cli: Runner):
    ended = optimized(here, cli, **with_holdout(here))
    with RuntimeStore(here / "convergence-data") as store:
        store.offer("known", "default", [offer_of({"x": 1}, "a")], trust=0.5, kind="linear")
    done = cli("promote", ended["label"], "--yes")
    assert done.code == 0, done.err
    said = " ".join(done.err.split())
    assert "Its arms are linear, which have no ramp" in said
    undo = re.search(r"convergence arms retire known (\S+)`; for a ramp", said)
    assert undo is not None
    assert cli("arms", "retire", "known", undo[1]).code == 0


@pytest.mark.slow
def test_without_held_out_cases_the_gate_judges_nothing(here: Path, cli: Runner):
    result = optimized(here, cli, **with_holdout(here, 0.0))
    assert result["gate"] is None
    done = cli("promote", "--yes")
    assert done.code == 100
    assert "did not run" in done.err


@pytest.mark.slow
def test_a_run_may_promote_without_asking(here: Path, cli: Runner):
    optimized(here, cli, promotion={"require_adoption": False}, **with_holdout(here))
    with RuntimeStore(here / "convergence-data") as store:
        champion = champion_of(store, "known")
    assert champion is not None
    assert "automatically" in champion.reason
    arms = cli("arms", "list", "known", "--json").json["arms"]
    assert champion.candidate_id in {arm["arm_id"] for arm in arms}


@pytest.mark.slow
def test_a_promotion_that_awaited_adoption_is_adopted_by_the_next_run_at_the_same_rewards(
    here: Path, cli: Runner
):
    first = optimized(here, cli, **with_holdout(here))
    assert (first["gate"]["decision"], first["gate"]["is_adopted"]) == ("promote", False)
    settings = {"promotion": {"require_adoption": False}, **with_holdout(here)}
    second = optimized(here, cli, **settings, optimization__warm_start={"enabled": False})
    with RuntimeStore(here / "convergence-data") as store:
        champion, n_looks = champion_of(store, "known"), len(looks(store, "known"))
    assert n_looks == 1, "the rewards are the same"
    assert second["gate"]["level"] == first["gate"]["level"]
    assert second["gate"]["is_adopted"]
    assert champion is not None
    assert champion.run_id == second["run_id"]


KINDS = {"type": "categorical", "choices": ["a", "c"], "default": "a"}
NEW = {"type": "categorical", "choices": ["short", "long"], "default": "short"}


def test_another_space_still_meets_the_champion(here: Path, cli: Runner):
    settings = {"promotion": {"require_adoption": False}, **with_holdout(here)}
    write_project(here)
    champion = put_into_production(here, {"x": 0.7, "kind": "b"})
    with RuntimeStore(here / "convergence-data") as store:
        # A new parameter: the champion is compared with the default of it.
        wider = optimized(here, cli, **settings, search_space__parameters__style=NEW)
        verdict, gate = wider["verdict"], wider["gate"]
        assert "champion" in verdict["sentence"]
        assert "not compared" not in verdict["sentence"]
        if gate is not None:
            assert (gate["opponent"], gate["champion_id"]) == ("champion", champion.candidate_id)
        assert wider["champion"]["params"] == {**champion.params, "style": "short"}

        # A parameter that the space lacks is part of what is in production.
        space = loaded(search_space={"parameters": {"kind": KINDS}}).space
        assert champion_tags(here / "convergence-data", "known", space) == {
            LACK_TAG: "`x` is no parameter of the search space"
        }

        x = float(champion.params["x"])
        beside = {"type": "float", "min": 0.0, "max": x / 2, "default": 0.1}
        kinds = {**KINDS, "choices": ["a", "b", "c"]}
        space = loaded(search_space={"parameters": {"x": beside, "kind": kinds}}).space
        assert champion_tags(here / "convergence-data", "known", space) == {
            LACK_TAG: f"`x` can no longer be {x!r}"
        }

        # A value that the space lacks: better than the defaults replaces no champion.
        before = champion_of(store, "known")
        narrow = optimized(here, cli, **settings, search_space__parameters__kind=KINDS)
        assert "The champion was not compared: `kind`" in narrow["verdict"]["sentence"]
        assert narrow["gate"]["opponent"] == "default"
        written = json.loads((here / "results" / "best_config.json").read_text())["_README"]
        assert "recommended" not in written["description"]
        assert "hold the champion's values" in written["how_to_use"]
        assert champion_of(store, "known") == before
    if narrow["gate"]["decision"] == "promote":
        done = cli("promote", narrow["label"], "--yes")
        assert done.code == 100
        assert "the search space lacks one of its values" in " ".join(done.err.split())


def test_promotion_needs_a_finished_run(here: Path, cli: Runner):
    done = cli("promote", "--store", here / "nothing")
    assert done.code == 2
    assert "No results store at" in done.err


def champion(name: str, reason: str = "promoted") -> Champion:
    return Champion(
        system="s", candidate_id=name, params={"x": name}, run_id=None, reason=reason, created_us=1
    )


def test_rollbacks_go_back_one_champion_after_the_other(tmp_path: Path):
    with RuntimeStore(tmp_path / "store") as store:
        assert previous_champion(store, "s") is None
        for name in ("a", "b", "c"):
            set_champion(store, champion(name))
        assert previous_champion(store, "s") == champion("b")
        set_champion(store, champion("b", "rollback from c"))
        assert previous_champion(store, "s") == champion("a")
        set_champion(store, champion("a", "rollback from b"))
        assert previous_champion(store, "s") is None
        set_champion(store, champion("d"))
        assert previous_champion(store, "s") == champion("a")
        set_champion(store, champion("defaults", "rollback from d by the guard"))
        assert previous_champion(store, "s") is None, "not what was rolled back"
        for name in ("a", "d"):
            set_champion(store, champion(name))
        assert champion_of(store, "s") == champion("d")
        assert len(champions(store, "s")) == 9
        assert champion_of(store, "other") is None
        for name in ("w", "v"):
            set_champion(store, champion(name))
        set_champion(store, champion("d", "rollback from v by the guard"))
        assert previous_champion(store, "s") == champion("a"), "v came during the ramp of w"


def test_a_look_at_the_same_rewards_is_stored_once(tmp_path: Path):
    look = GateLook(
        system="s", kind="holdout", candidate_id="a", champion_id="b", run_id="r", decision="keep",
        n=3, log_e=0.5, log_threshold=3.0, details={"mean": 0.1}, created_us=7,
    )  # fmt: skip
    with RuntimeStore(tmp_path / "store") as store:
        assert save_look(store, look)
        assert not save_look(store, look)
        assert looks(store, "s") == [look]
        first = replace(look, run_id="night-1", details={"cases": "a b"})
        second = replace(look, run_id="night-2", details={"cases": "b c"})
        assert save_look(store, first)
        assert looks_before(store, second) == {"a": 1, "b": 1}
        assert save_look(store, second)
        assert looks_before(store, second) == {"a": 1, "b": 1}, (
            "after a resume the look is the same"
        )
        assert not save_look(store, replace(second, log_e=9.0))
        third = replace(second, details={"cases": "b c d"})
        assert looks_before(store, third) == {"a": 1, "b": 2, "c": 1}, "more cases: another look"
        assert looks_before(store, replace(first, system="other")) == {}
        assert looks(store, "other") == []
        seen = replace(third, details={"cases": "e f", "rewards": "1"})
        again = replace(seen, run_id="night-3")
        assert (save_look(store, seen), save_look(store, again)) == (True, False)
        assert looks_before(store, again) == looks_before(store, seen)
        assert save_look(store, replace(again, details={**seen.details, "rewards": "2"}))


TWO_ROLES = """
def answer(case, params):
    is_law = "clause" in case["question"]
    return {"result": "yes" if (params["kind"] == "a") == is_law else "no"}
"""


def test_requests_are_routed_where_cases_need_different_settings(here: Path, cli: Runner):
    (here / "roles.py").write_text(TWO_ROLES)
    questions = ["Which clause of the contract binds us?", "Why does this loop not compile?"]
    cases = [
        {"id": f"c{n:02d}", "input": {"question": f"{questions[n % 2]} {n}"}, "expected": "yes"}
        for n in range(40)
    ]
    (here / "questions.json").write_text(json.dumps(cases))
    kind = {"type": "categorical", "choices": ["a", "b"], "default": "a"}
    ended = optimized(
        here,
        cli,
        api__function="roles.py:answer",
        search_space__parameters={"kind": kind},
        evaluation__test_cases={"path": "questions.json", "holdout": 0.25},
        evaluation__metrics={"right": {"type": "exact_match"}},
    )
    routing = ended["routing"]
    assert isinstance(routing, dict)
    assert routing["n_cases"] == 30
    assert routing["gain"] == pytest.approx(0.5, abs=0.1)
    assert routing["low"] > 0.2
    assert routing["texts"] == (NAME if is_installed() else "")
    report = cli("report", ended["label"]).out
    assert "Routing by case would earn +0." in report
    assert (f"texts embedded by {NAME})" in report) == is_installed()
    assert f"convergence arms route {ended['label']}" in report
    routed = cli("arms", "route", "--json")
    assert routed.code == 0, routed.err
    arms = cli("arms", "list", "known", "--json").json["arms"]
    assert sorted(arm["params"]["kind"] for arm in arms) == ["a", "b"]
    assert {arm["arm_id"] for arm in arms} == set(routed.json["arms"])
