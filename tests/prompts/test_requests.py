"""What a request tells its writer of the system."""

from typing import Any, cast

import numpy as np
import pytest

from convergence_core.config import parse_configuration
from convergence_core.config.prompts import PromptsConfig
from convergence_core.prompts.editor import Editor
from convergence_core.prompts.failures import Observed
from convergence_core.prompts.operators import Shown
from tasks.prompts.factory import facts_of

CONFIGURATION = """
api:
  name: reviews
  kind: openai
  endpoint: http://127.0.0.1:1/v1
  request:
    options: {model: small, max_tokens: 5}
    messages:
      - {role: system, content: "{system}"}
      - {role: user, content: "Review: {input.text}"}
search_space: {parameters: {system: {type: text, variants: [Sort.], default: Sort., mutate: true}}}
evaluation:
  test_cases: {inline: [{input: {text: a}, expected: b}]}
  metrics: {exact_match: {weight: 1}, latency_ms: {weight: 0}}
"""


def test_a_writer_reads_model_user_message_limit_and_scoring():
    configuration = parse_configuration(CONFIGURATION, file="optimization.yaml")
    assert facts_of(configuration, str.upper) == (
        ("model", "small"),
        ("template", "REVIEW: {INPUT.TEXT}"),
        ("limit", "5 tokens for an answer"),
        ("scoring", "THE WHOLE ANSWER MUST EQUAL THE EXPECTED TEXT"),
    )


@pytest.mark.parametrize("n_wrong", [0, 2])
def test_a_case_is_shown_once_and_as_a_failure_only_where_an_answer_failed(n_wrong: int):
    names = [f"c{n}" for n in range(4)]
    observed = [
        Observed.from_json(
            [name, float(n >= n_wrong), "a", "", "wrong" if n < n_wrong else "none"]
        )
        for n, name in enumerate(names)
    ]
    editor = Editor(
        settings=PromptsConfig(), task="", parameters=("system",), invariants=cast("Any", None),
        cases={name: Shown(input=name, answer=None, expected="e", reason="") for name in names},
    )  # fmt: skip
    edit = editor.edit(
        "system", "reflect", parents=("Sort.",), observed=observed, generation=1, index=0,
        propensity=1.0, known=(), offered=(), rng=np.random.default_rng(0),
    )  # fmt: skip
    assert edit is not None
    text = str(edit.request and edit.request.messages()[1]["content"])
    assert [text.count(f"<input>{name}</input>") for name in names] == [1] * 4
    tags = ("<case>", "<failure>", "<success>")
    assert [text.count(tag) for tag in tags] == ([0, 2, 2] if n_wrong else [4, 0, 0])
