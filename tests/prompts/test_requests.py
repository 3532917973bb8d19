"""What a request tells its writer of the system."""

from convergence_core.config import parse_configuration
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
