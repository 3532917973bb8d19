"""Runs that are paid for: caps, raised caps, missing cells asked again, and runs without a key."""

import json
from pathlib import Path

import pytest

from tests.support.commands import Runner
from tests.support.http_server import Answer, LoopbackServer, Request

CHAT = """\
api:
  name: bot
  kind: openai
  endpoint: https://api.openai.com/v1
  auth: {type: bearer, token_env: NO_SUCH_KEY_IS_SET}
  request: {messages: [{role: system, content: "{prompt}"}, {role: user, content: "{input.q}"}]}
search_space:
  parameters:
    model: {type: categorical, choices: [gpt-4o-mini, gpt-4o], default: gpt-4o-mini}
    temperature: {type: float, min: 0.0, max: 1.0, default: 0.0}
    max_tokens: {type: int, min: 4, max: 16, default: 8}
    prompt: {type: text, variants: [Answer briefly., Answer with one number.], default: Answer briefly.}
evaluation:
  test_cases: [{id: a, input: {q: "2 + 3 ="}, expected: "5"}, {id: b, input: {q: "4 + 4 ="}, expected: "8"}]
  metrics: {exact_match: {weight: 1}}
optimization:
  seed: 3
  evolution: {population_size: 4, generations: 3, elite_size: 1}
  execution: {early_stopping: {enabled: false}}
"""

ENDPOINT = """\
api: {{name: shop, kind: http, endpoint: "{url}"}}
search_space: {{parameters: {{k: {{type: int, min: 1, max: 9, default: 2}}}}}}
evaluation:
  test_cases: [{{id: a, input: {{q: 1}}, expected: 1}}, {{id: b, input: {{q: 2}}, expected: 2}}]
  metrics: {{exact_match: {{weight: 1}}}}
optimization:
  seed: 3
  evolution: {{population_size: 3, generations: 2, elite_size: 1}}
  execution: {{max_retries: 0, early_stopping: {{enabled: false}}}}
"""

PAID_TWICE = (
    "select count(*) as n from (select call_key from attempts where state = 'done' "
    "group by call_key having count(*) > 1)"
)


@pytest.mark.prefect
@pytest.mark.slow
def test_offline_needs_no_key_and_a_raised_cap_goes_on(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text(CHAT)
    refused = cli("optimize")
    assert refused.code == 2
    assert "NO_SUCH_KEY_IS_SET" in refused.err

    capped = cli("optimize", "--offline", "--json", "--max-usd", "0.0005")
    assert capped.code == 3, capped.err
    assert capped.json["status"] == "budget"
    assert "budget.max_usd=0.0005" in capped.json["reason"]
    assert 0 < capped.json["cost_usd"] <= 0.0005
    assert capped.json["system"] == "bot.offline"

    without = cli("resume", "--max-usd", "1", capped.json["label"])
    assert without.code == 2
    assert "--offline" in without.err

    assert cli("resume", "--offline").code == 2  # nothing is unfinished, and nothing is raised
    # The run that the limit ended is found without its name.
    raised = cli("resume", "--offline", "--json", "--max-usd", "1")
    assert raised.code == 0, raised.err
    assert raised.json["run_id"] != capped.json["run_id"], "a finished run stays as it is"
    assert raised.json["facts"]["goes on from"] == capped.json["label"]
    assert raised.json["status"] == "done"
    assert raised.json["n_evaluations"] > capped.json["n_evaluations"]
    assert raised.json["generations_run"] >= 3
    (row,) = cli("query", PAID_TWICE, "--json").json
    assert row["n"] == 0


def test_an_unknown_price_is_refused_under_a_cap_before_any_call(here: Path, cli: Runner):
    (here / "optimization.yaml").write_text(CHAT.replace("gpt-4o]", "home-made]"))
    done = cli("optimize", "--offline", "--max-usd", "1")
    assert done.code == 2
    assert "`home-made`" in done.err
    assert "allow_unknown_prices" in done.err
    assert not (here / "convergence-data" / "live").exists()


@pytest.mark.prefect
@pytest.mark.slow
def test_a_limit_that_cuts_the_final_look_is_told_and_can_be_raised(here: Path, cli: Runner):
    def answer(request: Request) -> Answer:
        return Answer({"result": 0 if request.body["k"] == 2 else request.body["q"]})

    text = ENDPOINT.replace(
        "population_size: 3, generations: 2", "population_size: 2, generations: 1"
    )
    with LoopbackServer(answer) as server:
        (here / "optimization.yaml").write_text(
            # Enough for the 4 cells of the search and 3 of the 4 that look at the winner.
            text.format(url=server.url)
            + "prices: {http: {request: 0.01}}\nbudget: {max_usd: 0.07}\n"
        )
        cut = cli("optimize", "--json")
        assert cut.code == 3, cut.err
        assert (cut.json["status"], cut.json["n_calls"]) == ("budget", 7)
        assert "budget.max_usd=0.07" in cut.json["reason"]

        whole = cli("resume", "--json", "--max-usd", "1")
        assert whole.code == 0, whole.err
        assert (whole.json["reason"], whole.json["n_calls"]) == ("its one generation was run", 1)
        assert len(server.requests) == 8


@pytest.mark.prefect
@pytest.mark.slow
def test_missing_cells_of_a_finished_run_are_asked_again(here: Path, cli: Runner):
    is_ill = True

    def answer(request: Request) -> Answer:
        if is_ill and request.body["q"] == 2:
            return Answer({"detail": "busy"}, 503)
        return Answer({"result": request.body["q"]})

    with LoopbackServer(answer) as server:
        (here / "optimization.yaml").write_text(ENDPOINT.format(url=server.url))
        first = cli("optimize", "--json")
        assert first.code == 0, first.err
        assert first.json["n_missing"] > 0
        finished = cli("resume", first.json["label"])
        assert finished.code == 2
        assert "--retry-errors" in finished.err

        is_ill = False
        n_before = len(server.requests)
        healed = cli("resume", "--retry-errors", "--json")  # finds the run without its name
        assert healed.code == 0, healed.err
        asked = [request.body["q"] for request in server.requests[n_before:]]
    assert set(asked) == {2}
    assert healed.json["facts"]["goes on from"] == first.json["label"]
    kept = {
        row["run_id"]: row["summary_json"]
        for row in cli("query", "select run_id, summary_json from runs", "--json").json
    }
    assert json.loads(kept[first.json["run_id"]])["winner"] == first.json["winner"]
    assert healed.json["winner"]["search"]["mean"] > first.json["winner"]["search"]["mean"]
    missing = cli(
        "query",
        "select distinct run_id from (select run_id, candidate_id, case_id, replicate, role "
        "from evaluations group by all having count(reward) = 0)",
        "--json",
    ).json
    assert [row["run_id"] for row in missing] == [first.json["run_id"]]
