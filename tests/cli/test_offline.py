"""Runs without a key: results apart, and a stand-in with which every part of a run can be tried."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.test_documents import ROOT, blocks
from tests.support.commands import Runner
from tests.support.http_server import Answer, LoopbackServer, Request

PAGE = (ROOT / "docs/offline.md").read_text(encoding="utf-8")
SOCIETY: dict[str, Any] = {
    "society": {
        "enabled": True,
        "learning": {"rlp_enabled": True, "sao_enabled": True},
        "sao": {"n_samples": 6},
    },
    "llm": {"model": "openai/gpt-4o-mini", "api_key_env": "OPENAI_API_KEY"},
    "budget": {"max_calls": 2_000},
}
"""What is added to the example of chat endpoints; its own limit ends the run before the pairs are judged."""


@pytest.mark.prefect
@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_thoughts_are_scored_and_pairs_are_kept_by_the_stand_in(
    seed: int, here: Path, cli: Runner
):
    assert cli("init", ".", "--template", "openai", "--non-interactive").code == 0
    file = here / "optimization.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **SOCIETY}))
    done = cli("optimize", "--offline", "--json", "--seed", seed)
    assert done.code == 0, done.err
    thinking = done.json["thinking"]
    drawn = thinking["n_thoughts"] + thinking["n_silent"]
    assert drawn == 12
    assert thinking["n_scored"] >= 8
    (pairs,) = cli(
        "query",
        "select sum(n_pairs) as n, sum(n_kept) as kept from preference_rounds",
        "--json",
    ).json
    assert pairs["n"] == 6
    assert pairs["kept"] >= 3
    ignored = cli(
        "query", "select count(*) as n from thoughts where ignored_reason is not null", "--json"
    ).json
    assert ignored[0]["n"] <= 4


@pytest.mark.prefect
@pytest.mark.slow
def test_results_of_the_stand_in_lie_apart_and_bear_the_word(here: Path, cli: Runner):
    assert cli("init", ".", "--template", "openai", "--non-interactive").code == 0
    (here / "results").mkdir()
    (here / "results/best_config.py").write_text("BEST_CONFIG = {'mine': True}\n")
    done = cli("optimize", "--offline", "--generations", 1)
    assert done.code == 0, done.err
    assert {p.name for p in (here / "results").iterdir()} == {"best_config.py", "offline"}
    assert "mine" in (here / "results/best_config.py").read_text()
    written = here / "results/offline"
    report = (written / "latest/report.md").read_text()
    assert report.startswith("# mood.offline-")
    assert "convergence promote" not in report
    assert "mood.offline-" in (written / "best_config.py").read_text().splitlines()[0]
    for name in ("best_config.json", "detailed_results.json", "report.md"):
        assert (written / name).read_text() == (written / "latest" / name).read_text()


@pytest.mark.prefect
@pytest.mark.slow
def test_judges_and_society_of_an_endpoint_are_stood_in_for_as_printed(
    here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    (block,) = [b for b in blocks(PAGE, "yaml") if "auto_generate_agents" in b]
    (cases,) = blocks(PAGE, "json")
    (here / "test_cases.json").write_text(cases)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("API_KEY", "target-key-1234567")

    def answer(request: Request) -> Answer:
        assert request.headers["authorization"] == "Bearer target-key-1234567"
        warm = request.body["temperature"] > 0.8
        return Answer({"result": "Whatever." if warm else "Please send us its number."})

    with LoopbackServer(answer) as server:
        (here / "optimization.yaml").write_text(block.replace("https://host", server.url))
        valid = cli("validate")
        assert valid.code == 0, valid.out + valid.err
        done = cli("optimize", "--offline", "--generations", "4", "--json")
    assert done.code == 0, done.err
    assert done.json["thinking"]["n_thoughts"] > 0
    calls = cli(
        "query", "select purpose, sum(n_calls) as n from costs group by all", "--json"
    ).json
    assert {"evaluation", "judge", "thought", "prediction", "sao"} <= {c["purpose"] for c in calls}
    texts = cli("query", "select distinct text from payloads", "--json").out
    assert "target-key-1234567" not in texts
    thoughts = cli("query", "select text from payloads where kind = 'prompt'", "--json").out
    assert "my_api" in thoughts or done.json["thinking"]


@pytest.mark.prefect
@pytest.mark.slow
def test_a_key_of_the_endpoint_may_be_unset(
    here: Path, cli: Runner, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("API_KEY", raising=False)
    (block,) = [b for b in blocks(PAGE, "yaml") if "auto_generate_agents" in b]
    (here / "test_cases.json").write_text(json.dumps([{"input": "a"}, {"input": "b"}]))
    with LoopbackServer(lambda _: Answer({"result": "Yes."})) as server:
        (here / "optimization.yaml").write_text(block.replace("https://host", server.url))
        assert cli("optimize", "--offline", "--generations", "1", "--json").code == 0
        assert server.requests[0].headers["authorization"] == "Bearer offline"


def test_a_run_that_asks_no_model_has_nobody_to_stand_in_for(here: Path, cli: Runner):
    assert cli("init", ".", "--template", "function", "--non-interactive").code == 0
    done = cli("optimize", "--offline")
    assert done.code == 2
    assert "asks nothing that `--offline` could stand in for" in done.err
    assert "metrics of type `llm_judge`" in done.err.replace("\n", " ")
