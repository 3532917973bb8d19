"""Valid configurations for tests to modify."""

import copy
from collections.abc import Mapping
from typing import Any, TypeAlias

import pytest
import yaml

from convergence_core.config import parse_configuration, parse_mapping
from convergence_core.config.secrecy import dotted
from convergence_core.config.source import read_yaml
from convergence_core.errors import ConfigurationError, Problem

FUNCTION = """\
# yaml-language-server: $schema=./optimization.schema.json
api: {name: bot, function: "bot.py:answer"}
search_space:
  parameters:
    temperature: {type: float, min: 0.0, max: 1.5, step: 0.1, default: 0.7}
    max_tokens: {type: int, min: 64, max: 4096, log: true, default: 256}
    model: {type: categorical, choices: [small, large, 3, 0.5, true], default: small}
    stream: {type: boolean, default: false}
    top_p: {type: float, min: 0.5, max: 1.0, when: {model: large}}
    system: {type: text, variants: [prompts/a.md, "Be brief."], default: prompts/a.md}
evaluation:
  test_cases: {path: test_cases.json, holdout: 0.3}
  repeats: 2
  metrics:
    quality: {weight: 0.6, type: similarity, method: jaccard, field: answer.text}
    latency_ms: {weight: 0.3, scale: {good: 200, bad: 5000}}
    shape: {type: json_schema, schema: {type: object}, weight: 0, min: 0.9}
    own: {type: function, function: "metrics.py:own"}
optimization:
  algorithm: mab_evolution
  seed: 7
  evolution: {population_size: 20, generations: 10, elite_size: 2}
  execution: {parallel_workers: 8, early_stopping: {patience: 3, min_improvement: 1e-2}}
budget: {max_calls: 5000}
society: {enabled: false}
storage: {path: ./convergence-data, keep_text: false}
output: {save_path: ./results, formats: [json, html]}
"""

HTTP = """\
api:
  name: bot
  endpoint: https://api.example.com/v1/answer
  auth: {type: bearer, token_env: BOT_TOKEN}
  request:
    method: POST
    headers: {X-Trace: "yes", X-Tenant: "${TENANT}"}
    body: {question: "{input.question}", settings: {t: "{temperature}"}, n: [1, "{input}"]}
    query: {v: "{max_tokens}"}
  response: {result_field: "choices[0].text", cost_field: usage.cost}
search_space:
  parameters:
    temperature: {type: continuous, min: 0, max: 1}
    max_tokens: {type: categorical, choices: [64, 256]}
evaluation:
  test_cases:
    - {id: a, input: {question: "1+1?"}, expected: "2"}
  metrics:
    accuracy: {weight: 1.0, type: higher_is_better}
    cost_usd: {weight: 0.1, type: lower_is_better, scale: {good: 0, bad: 0.01}, max: 0.02}
"""

OPENAI = """\
api:
  name: bot
  models:
    small: {endpoint: "https://small.example.com/v1"}
    large: {endpoint: "https://large.example.com/v1/"}
  auth: {type: api_key, token_env: BOT_KEY, header_name: api-key}
  request:
    messages:
      - {role: system, content: "{system}"}
      - {role: user, content: "{input}"}
    options: {seed: 3}
search_space:
  parameters:
    model: [small, large]
    system: {type: text, variants: [Be kind., Be strict.]}
  constraints: []
evaluation:
  test_cases: cases.jsonl
  metrics:
    contains: {case_sensitive: false}
"""

AZURE = """\
api:
  name: bot
  kind: azure
  endpoint: https://bot.openai.azure.com
  api_version: "2025-01-01-preview"
  deployment: bot-4o
  auth: {token_env: AZURE_KEY}
  request:
    max_response_bytes: 1000000
    stream: true
    unsupported: drop
    options: {model: gpt-4o-mini}
search_space:
  parameters:
    temperature: {type: float, min: 0, max: 1, default: 0.5}
    reasoning_effort: {type: categorical, choices: [low, high], default: low}
evaluation:
  test_cases: [{id: a, input: "1+1?", expected: {text: "2", label: 9}}]
  metrics:
    first_token_ms: {weight: 0.1, max: 2000}
    cost_usd: {weight: 0.1, scale: {good: 0, bad: 0.01}}
    quality:
      type: llm_judge
      rubric: "Is it right, and short?"
      votes: 3
      expected_field: text
      label_field: expected.label
      min: 0.2
      scale: {good: 1, bad: 0.5}
    safe: {type: llm_judge, mode: pass_fail, rubric_path: safe.md, llm: {temperature: 0.7}}
    better:
      type: llm_judge
      mode: pairwise
      rubric: "Which is kinder?"
      champion: {temperature: 0.25, reasoning_effort: high}
      llm: {model: groq/large, base_url: null, api_key_env: GROQ_KEY, parallel_workers: 2}
    newer: {type: llm_judge, mode: pairwise, rubric: "Which is newer?", champion: default}
budget: {max_usd: 20, max_calls: 5000, max_tokens: 2000000, max_minutes: 120.5, allow_unknown_prices: true}
cache: {epoch: 7d}
prices:
  gpt-4o-mini: {input: 0.15, output: 0.6, cached_input: 0.075, cache_write: 0.2, request: 0.001, max_output_tokens: 16384}
  fixed: {request: 0.002}
llm:
  model: openai/gpt-4o-mini
  endpoint: http://127.0.0.1:8000/v1
  api_key_env: OPENAI_API_KEY
  temperature: null
  max_tokens: 500
  timeout_seconds: 60
  parallel_workers: 4
storage: {journal: "${JOURNAL_URL}"}
"""

GEMINI = """\
api:
  name: bot
  kind: gemini
  auth: {token_env: GEMINI_API_KEY}
search_space:
  parameters:
    model: [gemini-flash, gemini-pro]
    temperature: {type: continuous, min: 0, max: 1}
evaluation:
  test_cases: cases.jsonl
  metrics:
    quality: {type: llm_judge, rubric_path: rubric.md}
cache: forever
society:
  enabled: false
  llm: {model: gemini/gemini-flash, api_key_env: GEMINI_API_KEY, temperature: 0.7, max_tokens: 1000}
"""

EXAMPLES = {
    "function": FUNCTION,
    "http": HTTP,
    "openai": OPENAI,
    "azure": AZURE,
    "gemini": GEMINI,
}

MINIMAL: dict[str, Any] = {
    "api": {"name": "bot", "function": "bot:answer"},
    "search_space": {
        "parameters": {
            "t": {"type": "float", "min": 0, "max": 1},
            "n": {"type": "int", "min": 1, "max": 10},
            "m": {"type": "categorical", "choices": ["a", "b"]},
        }
    },
    "evaluation": {
        "test_cases": {"path": "cases.json"},
        "metrics": {"exact_match": {"weight": 1}},
    },
}

REMOVED = object()
"""New value that removes the key."""


def edited(changes: Mapping[str, Any], base: Mapping[str, Any] = MINIMAL) -> dict[str, Any]:
    """Return ``base`` with values set at slash-separated paths."""
    data: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in changes.items():
        *parents, key = path.split("/")
        holder = data
        for parent in parents:
            holder = holder.setdefault(parent, {})
        if value is REMOVED:
            del holder[key]
        else:
            holder[key] = value
    return data


def problems_of(changes: Mapping[str, Any], base: Mapping[str, Any] = MINIMAL) -> list[Problem]:
    """Return the problems of an edited configuration; an empty list when it is valid."""
    try:
        parse_mapping(edited(changes, base))
    except ConfigurationError as error:
        return list(error.problems)
    return []


HTTP_ENDPOINT: dict[str, Any] = edited(
    {"api/function": REMOVED, "api/endpoint": "https://example.com/a"}
)
CHAT: dict[str, Any] = edited({"api/kind": "openai"}, HTTP_ENDPOINT)
JUDGED: dict[str, Any] = edited(
    {
        "llm": {"model": "openai/gpt-4o-mini", "api_key_env": "OPENAI_API_KEY"},
        "evaluation/metrics/quality": {"type": "llm_judge", "rubric": "Is it right?"},
    }
)
"""Configuration with a judge, which the minimal one lacks."""

Rule: TypeAlias = tuple[dict[str, Any], str, str, str]
"""Changes that break a rule, the reported key, and parts of the rule and the fix."""


def check_rule(rule: Rule, base: Mapping[str, Any] = MINIMAL) -> None:
    """Assert that these changes break only this rule."""
    changes, key, words, fix = rule
    found = {problem.key: problem for problem in problems_of(changes, base)}
    assert key in found, f"only {list(found)}"
    assert words in found[key].rule
    assert fix in found[key].fix
    n_expected = 3 if "cycle" in fix else 1
    assert len(found) == n_expected, f"more than one thing is said: {list(found)}"
    _check_place(edited(changes, base), key)


def _check_place(data: Mapping[str, Any], key: str) -> None:
    """Assert that a problem points at the value that it shows, or else at the key."""
    text = yaml.safe_dump(dict(data), sort_keys=False, allow_unicode=True)
    source = read_yaml(text, file="f.yaml")
    path = next((path for path in source.values if dotted(path) == key), None)
    if path is None:
        return  # an absent key has no position
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(text, file="f.yaml")
    problem = next(problem for problem in caught.value.problems if problem.key == key)
    written: Any = data
    for part in path:
        written = written[part]
    if not (written.strip() if isinstance(written, str) else written):
        return  # nothing to show, whether the value or the key is wrong
    of_key = problem.value.strip("\"'`") in ("", path[-1])
    place = (source.keys if of_key else source.values)[path]
    assert (problem.line, problem.column) == (place.line, place.column), (key, problem)
