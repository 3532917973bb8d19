"""``test``: current settings on all cases, exit codes, journal and budget, JUnit XML."""

import re
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.inputs.loader import load
from tasks.mock.mock_server import MockServer
from tasks.store.runtime.promotions import set_champion
from tasks.store.runtime.rows import Champion
from tasks.store.runtime.runtime_store import RuntimeStore
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.commands import Runner
from tests.support.optimizations import ledger, write_project
from tests.support.paid_runs import STORE, write_project as write_paid_project

DEFAULTS = {"x": 0.1, "kind": "a"}  # reward about 0.32 on each case


def crown(folder: Path, **params: object) -> None:
    """Make these parameters the champion of the project's system."""
    space = load(folder / "optimization.yaml").space
    candidate = space.candidate(params)  # type: ignore[arg-type]
    with RuntimeStore(folder / STORE) as store:
        champion = Champion(
            system="known", candidate_id=candidate.candidate_id, params=candidate.params,
            run_id=None, reason="by hand", created_us=time.time_ns() // 1000,
        )  # fmt: skip
        set_champion(store, champion)


def junit(folder: Path) -> ET.Element:
    return ET.parse(folder / "report.xml").getroot()  # noqa: S314 - our own


def test_the_defaults_are_asked_every_case_once_and_pass(here: Path, cli: Runner):
    write_project(here)
    done = cli("test", "--fail-under", 0.3, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert told["passed"] is True
    assert told["params"] == DEFAULTS
    assert told["reward"]["n_cases"] == len(told["cases"]) == len(ledger(here)) == 12
    rewards = [case["answer"]["reward"] for case in told["cases"]]
    assert rewards == sorted(rewards)
    assert told["reward"]["mean"] == pytest.approx(sum(rewards) / 12)
    assert told["reward"]["low"] < told["reward"]["mean"] < told["reward"]["high"]
    assert {case["held_out"] for case in told["cases"]} == {True, False}


def test_a_mean_below_the_threshold_fails(here: Path, cli: Runner):
    write_project(here)
    done = cli("test", "--fail-under", 0.9)
    assert done.code == 1
    assert "FAILED: the mean reward is 0.323, not at least 0.9" in done.out


def test_a_champion_that_is_shown_to_be_better_fails_the_present_settings(here: Path, cli: Runner):
    write_project(here)
    cli("test")
    crown(here, x=0.7, kind="b")
    done = cli("test", "--against", "champion", "--json")
    assert done.code == 1, done.out
    told = done.json
    gap = told["champion"]["difference"]
    assert gap["high"] < 0
    assert gap["mean"] == pytest.approx(
        told["reward"]["mean"] - told["champion"]["reward"]["mean"]
    )
    assert [check["passed"] for check in told["checks"]] == [True, False]


def test_bad_input_is_exit_code_2(here: Path, cli: Runner):
    write_project(here)
    missing = cli("test", "--against", "champion")
    assert missing.code == 2
    assert "convergence promote" in missing.err
    parameters = {"x": {"type": "float", "min": 0.0, "max": 1.0}}
    write_project(here, search_space__parameters=parameters)
    none = cli("test")
    assert none.code == 2
    assert "`default:`" in none.err
    assert not ledger(here)


def test_a_test_is_no_run_of_the_search(here: Path, cli: Runner):
    write_project(here)
    cli("test")
    (row,) = cli("runs", "--json").json
    assert (row["system"], row["status"]) == ("known.test", "done")
    assert cli("runs", "known", "--json").json == []
    assert cli("resume").code != 0
    assert "convergence test" in cli("resume", row["label"]).err
    assert "tested the current settings" in cli("report", row["label"]).err
    assert cli("store", "check").code == 0
    sql = "select count(*) as n from evaluations join candidates using (run_id, candidate_id)"
    assert cli("query", sql, "--json").json == [{"n": 12}]


def test_an_answer_that_never_came_is_an_error_and_no_green_test(here: Path, cli: Runner):
    write_project(here)
    target = here / "target.py"
    target.write_text(
        target.read_text().replace(
            "    return min(1.0", "    if result < 0.31: raise OSError('gone')\n    return min(1.0"
        )
    )
    done = cli("test", "--junit", "report.xml")
    assert done.code == 1
    assert "cases have no reward" in done.out
    suite = junit(here)
    assert int(suite.get("errors", "")) == len(suite.findall("testcase/error")) > 0


WEIGHED = """
api: {name: weighed, function: "bot.py:answer"}
search_space: {parameters: {a: {type: int, min: 1, max: 2, default: 1}}}
evaluation:
  repeats: 2
  test_cases:
    inline:
      - {id: five, input: "5", expected: "5", weight: 3}
      - {id: text, input: "The answer is 6.", expected: "6"}
      - {id: gone, input: "gone", expected: "1"}
  metrics:
    contains: {weight: 1}
    exact_match: {weight: 0}
    number: {type: numeric, weight: 0}
"""


def test_metrics_are_weighed_as_rewards_are_and_cases_without_a_reward_counted_once(
    here: Path, cli: Runner
):
    (here / "bot.py").write_text("def answer(input, params):\n    return input\n")
    (here / "optimization.yaml").write_text(
        WEIGHED.replace('      - {id: gone, input: "gone", expected: "1"}\n', "")
    )
    done = cli("test")
    assert done.code == 0, done.err
    said = " ".join(done.out.split())
    assert re.search(r"exact_match 0\.750?\b", said)
    assert re.search(r"number 1[.0]* \(known of 1 of 2 cases\)", said)
    (here / "slow.py").write_text(
        "def latency_ms(result, expected):\n    return 100.0 if result == '5' else 20.0\n"
        "def cost_usd(result, expected):\n    return 0.5 if result == '5' else 0.1\n"
    )
    (here / "optimization.yaml").write_text(
        WEIGHED
        + "".join(
            f'    {name}: {{type: function, function: "slow.py:{name}", weight: 0}}\n'
            for name in ("latency_ms", "cost_usd")
        )
    )
    means = cli("test", "--json").json["per_answer"]
    for name, mean in (("latency_ms", 68.0), ("cost_usd", 0.34)):
        assert means[name] == means["metrics"][name] == pytest.approx(mean)
    (here / "known.py").write_text(
        "def known(result, expected):\n    return None if result == 'gone' else 1.0\n"
    )
    (here / "optimization.yaml").write_text(
        WEIGHED + '    known: {type: function, function: "known.py:known", weight: 1}\n'
    )
    done = cli("test")
    assert "1 of 3 cases have no reward" in done.out


def test_the_price_of_an_answer_is_one_number_with_billed_failures_and_reused_answers(
    here: Path, cli: Runner
):
    (here / "bot.py").write_text(
        "def answer(input, params):\n"
        "    if input == 'gone':\n        raise ValueError('free')\n"
        "    if input == '5':\n        return {'result': '5', 'cost_usd': 0.1}\n"
        "    return {'success': False, 'error': 'refused', 'cost_usd': 0.02}\n"
    )
    (here / "optimization.yaml").write_text(
        WEIGHED
        + "cache: forever\noptimization: {evolution: {population_size: 2, generations: 1}}\n"
    )
    usd = pytest.approx((3 * 0.1 + 0.02) / 4)
    assert cli("test", "--json").json["per_answer"]["cost_usd"] == usd
    for _ in range(2):
        done = cli("optimize", "--json").json
        assert done["baseline"]["answer_usd"] == usd
    means = cli("compare", "default", "found", "--json").json["per_answer"]
    assert [mean["cost_usd"] for mean in means] == [usd, usd]


@pytest.fixture
def paid(here: Path) -> Iterator[MockServer]:
    with MockServer() as server:
        write_paid_project(here, server.url)
        yield server


def test_calls_go_through_journal_and_budget(here: Path, cli: Runner, paid: MockServer):
    done = cli("test", "--json")
    assert done.code == 0, done.err
    assert done.json["calls"] == paid.stats()["calls"] == 20
    assert done.json["n_unpriced"] == 0
    (row,) = ParquetStore(here / STORE).rows(
        "select sum(cost_usd) as usd, count(*) as n from attempts"
    )
    assert row == {"usd": pytest.approx(done.json["cost_usd"]), "n": 20}


def test_a_limit_is_never_passed_and_is_exit_code_3(here: Path, cli: Runner, paid: MockServer):
    done = cli("test", "--max-calls", 7, "--json")
    assert done.code == 3
    assert paid.stats()["calls"] == done.json["calls"] == 7
    assert "max_calls" in done.json["budget_reached"]
    assert "resume" not in done.json["budget_reached"]
    assert len(done.json["cases"]) + len(done.json["unasked"]) == 20
    more = cli("test", "--max-calls", 30, "--json")
    assert more.code == 0, more.err
    assert more.json["run"] == done.json["run"], "it goes on with a higher limit"
    assert paid.stats()["calls"] == 20


def test_an_interrupted_test_goes_on_and_pays_nothing_twice(
    here: Path, cli: Runner, paid: MockServer
):
    from convergence_core.errors import RunInterruptedError
    from tasks.run.assessment import assess, open_assessment

    def stop_at_five(event: object) -> None:
        if paid.stats()["calls"] >= 5:
            run.stop()

    run = open_assessment(load(here / "optimization.yaml"), on_event=stop_at_five)
    with pytest.raises(RunInterruptedError, match="convergence test"):
        assess(run)
    before = paid.stats()["calls"]
    assert 5 <= before < 20
    done = cli("test", "--json")
    assert done.code == 0, done.err
    assert paid.stats()["calls"] == 20
    assert done.json["run"] == run.label
    sql = "select count(*) as n from attempts where state = 'done'"
    assert ParquetStore(here / STORE).rows(sql) == [{"n": 20}]
