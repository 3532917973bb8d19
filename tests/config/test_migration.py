"""Configurations of version 0.1 become ours, and say what was changed."""

import json
import random

import pytest
import yaml
from hypothesis import example, given, settings, strategies as st

from convergence.compat.migration import migrate_text
from convergence.compat.migration.yaml_text import scalar, to_yaml
from convergence_core.config import Configuration, parse_configuration
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError
from tests.config.test_mutations import TEXT_MUTATIONS, mutate_nodes
from tests.support.config_examples import EXAMPLES

CHAT = """\
# An original that uses most of its keys.
api:
  name: "my chat"
  endpoint: "https://api.example.com/openai/v1/chat/completions"
  adapter_enabled: false
  mock_mode: yes
  auth: {type: "bearer", token_env: "CHAT_KEY", header_name: x-key}
  request:
    method: post
    headers: {Content-Type: application/json, Authorization: "Bearer hunter2", X-Api-Key: hunter3}
    timeout_seconds: "60"
  response: {success_field: choices, result_field: "choices[0].message.content"}
search_space:
  parameters:
    model: {type: categorical, values: [large, small, large]}
    temperature: {type: continuous, min: 0.0, max: 2.0, step: 0.1, description: "heat: 0 to 2"}
    rate: {type: continuous, min: 1e-5, max: 1e-2, step: 0.01}
    max_tokens: {type: discrete, values: [256, 512]}
    k: {type: discrete, min: 1.0, max: 9.0, step: 2}
    share: {type: discrete, min: 0, max: 1, step: 0.25}
    top-p: {type: continuous, min: 0.1, max: 1}
    fixed: {type: continuous, min: 1, max: 1}
    stream: {type: categorical, values: [no]}
    stop: {type: categorical, values: [null, ["</s>"]]}
    short: [1, 2]
evaluation:
  test_cases: {path: cases.json, augmentation: {enabled: true, mutation_rate: 0.3}}
  custom_evaluator: {enabled: true, module: judge, function: score}
  metrics:
    quality: {weight: 0.4, type: higher_is_better, function: custom, note: x}
    accuracy: {weight: 0.1, type: higher_is_better, function: exact_match}
    latency_ms: {weight: 0.25, type: lower_is_better, threshold: 5000}
    cost_usd: {weight: 0.1, type: lower_is_better, budget_per_call: 0.10}
    slow: {weight: 0.15, type: lower_is_better, function: custom, threshold: 3}
    later: {weight: 0.1, type: rouge}
    judged: {weight: 0.1, type: llm_judge}
optimization:
  algorithm: mab_only
  mab: {strategy: ucb, exploration_rate: 0.2}
  evolution: {population_size: 1, generations: 3, elite_size: 2}
  execution:
    experiments_per_generation: 12
    parallel_workers: 2
    max_retries: 50
    retry_delay_seconds: 2
    early_stopping: {enabled: yes, patience: 0}
output:
  save_path: ./results/chat
  formats: [json, markdown, csv, pdf]
  visualizations: [score_over_time, pareto_front, cost_vs_quality, sankey]
  export_best_config: {enabled: true, format: python, output_path: ./best.py}
society: {enabled: true, learning: {rlp_enabled: true}, llm: {model: gemini/flash}}
legacy: {enabled: true, session_id: chat}
rate_limiting: {rpm: 30}
"""

MODELS = """\
api:
  name: azure
  auth: {type: api_key, token_env: AZURE_KEY, api_key_header: api-key}
  models:
    gpt-4.1: {endpoint: "https://r.example.com/gpt-4/chat/completions?api-version=2025-01-01"}
search_space:
  parameters:
    model: {type: categorical, values: ["gpt-4.1"], description: which one}
evaluation:
  test_cases: {inline: [{id: a, input: {x: yes}, expected: "no"}]}
  metrics: {success_rate: {weight: 1, type: higher_is_better}, accuracy: {weight: 1.0}}
"""


def migrated(text: str) -> Configuration:
    migration = migrate_text(text, "old.yaml")
    assert [note for note in migration.notes if note.startswith("To do")] == []
    return parse_configuration(migration.text)


def test_a_full_configuration_is_ours_afterwards():
    configuration = migrated(CHAT)
    api = configuration.api
    assert (api.name, api.kind, api.request.method) == ("my_chat", "http", "POST")
    assert api.request.timeout_seconds == 60
    assert api.auth.model_dump(exclude_defaults=True) == {
        "type": "bearer",
        "token_env": "CHAT_KEY",
    }
    parameters = configuration.search_space.parameters
    assert list(parameters) == [
        "model", "temperature", "rate", "max_tokens", "k", "share", "top_p", "fixed", "stream",
        "short",
    ]  # fmt: skip
    assert parameters["stream"].model_dump(include={"choices"}) == {"choices": [False]}
    assert parameters["rate"].model_dump(include={"step", "min"}) == {"step": None, "min": 1e-5}
    assert parameters["k"].type == "int"
    assert parameters["share"].type == "float"
    metrics = configuration.evaluation.metrics
    assert list(metrics) == ["quality", "accuracy", "latency_ms", "cost_usd", "slow"]
    assert [m.type for m in metrics.values()] == [
        "function", "exact_match", "latency_ms", "cost_usd", "function",
    ]  # fmt: skip
    assert metrics["slow"].direction == "higher", "version 0.1 never read lower_is_better"
    assert metrics["cost_usd"].weight == 0, "nobody says what a call costs"
    optimization = configuration.optimization
    assert optimization.algorithm == "thompson"
    assert optimization.evolution.population_size == 2
    assert optimization.evolution.elite_size == 1
    assert optimization.execution.max_retries == 20
    assert optimization.execution.early_stopping.patience == 1
    assert configuration.output.visualizations == ["learning_curve", "tradeoffs"]


def test_models_and_inline_cases_are_kept():
    configuration = migrated(MODELS)
    assert list(configuration.api.models) == ["gpt-4.1"]
    assert configuration.api.auth.header_name == "api-key"
    (case,) = configuration.evaluation.test_cases.inline or []
    assert case == {"id": "a", "input": {"x": True}, "expected": "no"}
    assert configuration.evaluation.metrics["accuracy"].type == "exact_match"


@pytest.mark.parametrize(
    ("about", "reason"),
    [
        ("api.name", "no spaces"),
        ("api.kind", "requests are sent as before"),
        ("api.auth.header_name", "does not use it"),
        ("api.request.headers.Authorization", "`api.auth` sets it"),
        ("api.request.headers.X-Api-Key", "export it as X_API_KEY"),
        ("api.response.result_field", "evaluators got the whole answer"),
        ("search_space.parameters.model", "stood there twice"),
        ("search_space.parameters.rate.step", "not between 0 and the range"),
        ("search_space.parameters.share", "so it is a `float`"),
        ("search_space.parameters.top_p", "request field changes too"),
        ("search_space.parameters.fixed", "one value only"),
        ("search_space.parameters.stop", "no value is a text"),
        ("evaluation.test_cases.augmentation", "no longer fit"),
        ("evaluation.metrics.quality.note", "did not read it"),
        ("evaluation.metrics.latency_ms.scale", "was `threshold`"),
        ("evaluation.metrics.slow.type", "version 0.1 ignored it"),
        ("evaluation.metrics.slow.threshold", "for `latency_ms` only"),
        ("evaluation.metrics.later", "not available yet"),
        ("evaluation.metrics.judged", "needs a `rubric` and an `llm`"),
        ("society.llm", "nothing asks it"),
        ("api.mock_mode", "convergence optimize --offline"),
        ("evaluation.metrics.cost_usd", "the weight was 0.1"),
        ("optimization.algorithm", "was 'mab_only'"),
        ("optimization.mab.strategy", "Thompson sampling only"),
        ("optimization.evolution.population_size", "was 1"),
        ("optimization.evolution.elite_size", "read by `algorithm: evolution` only"),
        ("optimization.execution.experiments_per_generation", "never read it"),
        ("optimization.execution.retry_delay_seconds", "did not read it"),
        ("output.formats", "'pdf'"),
        ("output.visualizations", "'sankey'"),
        ("society", "are configured anew"),
        ("legacy", "can be queried"),
        ("rate_limiting", "did not read it"),
    ],
)
def test_each_change_is_told_in_a_note_and_in_a_comment(about, reason):
    migration = migrate_text(CHAT, "old.yaml")
    assert any(f"`{about}`" in note and reason in note for note in migration.notes)
    comments = " ".join(
        line.strip().removeprefix("# ")
        for line in migration.text.splitlines()
        if line.strip().startswith("#")
    )
    assert reason in comments


JUDGED = MODELS.replace(
    "metrics: {", 'metrics: {quality: {type: llm_judge, rubric: "Is it right?"}, '
)


def test_the_model_of_a_society_judges_where_a_metric_asks_it():
    llm = migrated(JUDGED + "society: {enabled: true, llm: {base_url: 'http://x/v1'}}\n").llm
    assert llm is not None
    assert llm.model_dump(exclude_defaults=True) == {
        "model": "gemini/gemini-2.0-flash-exp",
        "endpoint": "http://x/v1",
        "api_key_env": "GEMINI_API_KEY",
        "temperature": 0.7,
        "max_tokens": 1000,
    }


def test_a_model_beside_that_of_a_society_stays():
    text = JUDGED + "llm: {model: m, endpoint: 'http://x/v1'}\nsociety: {llm: {model: gemini/y}}\n"
    migration = migrate_text(text)
    llm = parse_configuration(migration.text).llm
    assert llm is not None
    assert llm.model == "m"
    assert any("`society.llm`" in note and "`llm` says it" in note for note in migration.notes)


@pytest.mark.parametrize("name", ["function", "http", "azure", "gemini"])
def test_a_configuration_of_ours_keeps_its_keys(name):
    """Where its kind is written, or is that of version 0.1."""
    ours = parse_configuration(EXAMPLES[name])
    again = migrated(EXAMPLES[name])
    kept = ("budget", "cache", "prices", "llm", "storage")
    assert [getattr(again, key) for key in kept] == [getattr(ours, key) for key in kept]
    assert again.api == ours.api
    assert again.evaluation.metrics == ours.evaluation.metrics


def test_secrets_are_not_carried_over():
    migration = migrate_text(CHAT, "old.yaml")
    assert "hunter" not in migration.text + " ".join(migration.notes)
    old = CHAT.replace('"CHAT_KEY"', '"sk-abcdefghijklmnop0123456789"')
    migration = migrate_text(old)
    assert "abcdefgh" not in migration.text + " ".join(migration.notes)
    assert "token_env: API_TOKEN" in migration.text


def test_migrating_twice_changes_nothing_more():
    once = migrate_text(CHAT).text
    twice = migrate_text(once)
    assert parse_configuration(twice.text) == parse_configuration(once)


def test_what_is_left_to_do_is_told():
    migration = migrate_text("api: {name: x}\nsearch_space: {parameters: {}}\n")
    left = [note for note in migration.notes if note.startswith("To do")]
    assert any("`evaluation` is required" in note for note in left)
    assert any("`search_space.parameters`" in note for note in left)


@pytest.mark.parametrize("text", ["", "- 1\n", "a: [", "\tx", "a: &a [*a]\n"])
def test_a_file_that_is_no_mapping_is_refused(text):
    with pytest.raises(ConfigurationError):
        migrate_text(text, "old.yaml")


def test_mutated_originals_migrate_or_are_refused():
    rng = random.Random("migration")
    for _ in range(150):
        text = rng.choice([CHAT, MODELS, EXAMPLES["azure"], EXAMPLES["gemini"]])
        if rng.random() < 0.5:
            text = json.dumps(mutate_nodes(yaml.safe_load(text), rng))
        else:
            text = rng.choice(TEXT_MUTATIONS)(text, rng) or "#"
        try:
            migration = migrate_text(text)
        except ConfigurationError as error:
            assert error.problems  # noqa: PT017 - either outcome is right
        else:
            left = any(note.startswith("To do") for note in migration.notes)
            try:
                parse_configuration(migration.text)
            except ConfigurationError:
                assert left
            else:
                assert not left


@settings(max_examples=200, deadline=None)
@example(".Inf")
@example("-.NaN")
@given(st.one_of(st.text(max_size=40), st.integers(), st.booleans(), st.none(), st.floats(allow_nan=False, allow_infinity=False)))  # fmt: skip
def test_scalars_are_read_back_by_both_versions_of_yaml(value):
    if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return
    text = f"a: {scalar(value)}\n"
    source = read_yaml(text, None)
    assert source.problems == []
    assert source.data == {"a": value}
    if not isinstance(value, float):  # YAML 1.1 takes 1e-05 for a text
        assert yaml.safe_load(text) == {"a": value}


def test_comments_stand_above_their_keys():
    text = to_yaml({"a": {"b": 1, "c": {}}}, {("a", "c"): ["why"], ("a", ""): ["gone"]})
    assert text == "a:\n  b: 1\n  # why\n  c: {}\n  # gone\n"


def test_a_genetic_population_of_two_leaves_room_for_one_elite():
    old = "optimization: {algorithm: genetic, evolution: {population_size: 2}}"
    optimization = yaml.safe_load(migrate_text(old, "old.yaml").text)["optimization"]
    assert optimization["algorithm"] == "evolution"
    assert optimization["evolution"]["elite_size"] == 1
