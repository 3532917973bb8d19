"""``evaluation``, ``llm``: test cases, metrics, and judges."""

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from convergence_core.config.base import EnvName, FunctionPath, PluginName, Section, Text

Direction: TypeAlias = Literal["higher", "lower"]
LLM_PROVIDERS = ("openai", "azure", "groq", "gemini", "anthropic")
"""Provider prefixes of judges' model names."""


def provider_of(model: object) -> str | None:
    """Return the provider prefix of a model's name, or ``None``."""
    match = re.match(rf"({'|'.join(LLM_PROVIDERS)})/.", model) if isinstance(model, str) else None
    return match[1] if match else None


class LlmConfig(Section):
    """Chat model that judges or writes, OpenAI-compatible or Anthropic."""

    nullable = frozenset({"temperature"})

    model: Text
    """Model; a prefix `openai/`, `azure/`, `groq/`, `gemini/` or `anthropic/` names the
    provider."""
    endpoint: Text | None = None
    """URL; also `base_url`. Default: the provider's; `azure` has none."""
    api_key_env: EnvName | None = None
    """Environment variable with the key. Default: no key, for your own `endpoint` only."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """Sampling temperature; `null` omits it."""
    max_tokens: int = Field(default=500, ge=1, le=1_000_000)
    """Maximum answer length, in tokens."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Time limit of a call, in seconds."""
    parallel_workers: int = Field(default=4, ge=1, le=512)
    """Maximum calls in flight."""


class TestCasesConfig(Section):
    """Test cases: a path, a list or a mapping."""

    __test__ = False  # not a class of tests

    path: Text | None = None
    """JSON, JSONL, YAML, CSV or parquet file."""
    inline: list[dict[str, JsonValue]] | None = Field(default=None, min_length=1)
    """The cases: `id`, `input`, `expected`, `weight`, `tags`, `group`, `description`."""
    approved: Text | None = None
    """JSONL file of cases from `convergence review`, read last; it may not exist yet. Those from
    games weigh at most a fifth of the total."""
    holdout: float = Field(default=0.0, ge=0, le=0.9)
    """Share of cases that the search never sees and the final check uses. A `group` stays
    together."""


class ScaleConfig(Section):
    """Metric values with reward 1 and reward 0; linear between."""

    good: float
    """Value with reward 1."""
    bad: float
    """Value with reward 0."""


class BaseMetric(Section):
    """Measured number of every answer, with the keys of every type."""

    type: str
    weight: float = Field(default=1.0, ge=0, le=1e9)
    """Relative share in the reward; 0 only shows and constrains."""
    direction: Direction
    """Good values. Default: by `scale`, else `lower` for times, costs and `tool_calls`."""
    scale: ScaleConfig | None = None
    """Conversion of values to rewards. Default: values are rewards; times end at 5,000 ms,
    `cost_usd` at 1, `tool_calls` at 10."""
    min: float | None = None
    """Hard constraint: lower values score 0."""
    max: float | None = None
    """Hard constraint: higher values score 0."""

    @property
    def is_constrained(self) -> bool:
        """Whether it has a hard constraint."""
        return self.min is not None or self.max is not None


class AnswerMetric(BaseMetric):
    """Metric of answers."""

    field: Text | None = None
    """Dotted path into the result. Default: the whole result, or `tool_calls` for tool metrics."""


class ExpectingMetric(AnswerMetric):
    """Metric that compares an answer with the case's expected value."""

    expected_field: Text | None = None
    """Dotted path into `expected`. Default: all of it, or `tool_calls` for tool metrics.
    `llm_judge` and `checks` skip cases without it."""


class CasedMetric(ExpectingMetric):
    """Metric with an option for letter case."""

    case_sensitive: bool = True
    """Whether capitals matter."""


class TextMetric(CasedMetric):
    """Comparison of texts."""

    type: Literal["exact_match", "contains", "bleu", "tool_arguments"]
    """What to measure. Default: the metric's name if it is a type, else `plugin` or
    `function`. `checks` reads checks from each case; `first_token_ms` needs
    `api.request.stream`."""


class RegexMetric(CasedMetric):
    """Match of a regular expression."""

    type: Literal["regex"]
    pattern: Text | None = None
    """Regular expression. Default: `expected`."""


class NumericMetric(ExpectingMetric):
    """Comparison of numbers."""

    type: Literal["numeric"]
    tolerance: float | None = Field(default=None, ge=0)
    """Maximum absolute difference that counts as equal. Default: 0."""
    relative_tolerance: float | None = Field(default=None, ge=0)
    """Maximum relative difference. Default: 0."""


class JsonSchemaMetric(ExpectingMetric):
    """Validity under a JSON Schema."""

    type: Literal["json_schema"]
    json_schema: dict[str, JsonValue] | Text | None = Field(default=None, alias="schema")
    """JSON Schema or its path. Default: `expected`."""


class SimilarityMetric(CasedMetric):
    """Similarity of two texts."""

    type: Literal["similarity"]
    method: Literal["levenshtein", "damerau_levenshtein", "jaro_winkler", "jaccard"] = (
        "levenshtein"
    )
    """Comparison of texts: edits per character, `jaro_winkler` for names, `jaccard` for shared
    words."""


class RougeMetric(ExpectingMetric):
    """ROUGE F1."""

    type: Literal["rouge"]
    method: Literal["rouge1", "rouge2", "rougeL"] = "rougeL"
    """`rouge`: F1, default `rougeL`."""


class PlainMetric(ExpectingMetric):
    """Metric without additional keys."""

    type: Literal["checks", "tool_choice"]


class MeasuredMetric(BaseMetric):
    """Time, cost or success of a call."""

    type: Literal["latency_ms", "cost_usd", "first_token_ms", "success_rate"]


class ToolCountMetric(AnswerMetric):
    """Number of tool calls."""

    type: Literal["tool_calls"]


class ToolAllowedMetric(ExpectingMetric):
    """Absence of forbidden tools."""

    type: Literal["tool_allowed"]
    forbidden: list[Text] = Field(default_factory=list)
    """Tools that must not be called; `*` matches any letters."""


class UserFunctionMetric(ExpectingMetric):
    """Value of a Python function."""

    type: Literal["function"]
    function: FunctionPath | None = None
    """Python function: `module:name` or `file.py:name`."""


class PluginMetric(BaseMetric):
    """Value of an installed plugin."""

    type: Literal["plugin"]
    plugin: PluginName
    """Entry point of the group `convergence.metrics`."""
    plugin_options: dict[str, JsonValue] = Field(default_factory=dict)
    """Options of the plugin."""


class JudgeMetric(ExpectingMetric):
    """Verdict of a language model."""

    type: Literal["llm_judge"]
    mode: Literal["rating", "pass_fail", "pairwise"] = "rating"
    """Verdict: 1 to 10, pass or fail, or the better of two answers, in both orders. A rating r
    scores (r - 1) / 9."""
    rubric: Text | None = None
    """Description of a good answer. Default: derived from `api.description`."""
    rubric_path: Text | None = None
    """File with the rubric."""
    votes: int = Field(default=1, ge=1, le=99)
    """Odd number of votes, averaged."""
    champion: Literal["default"] | dict[str, JsonValue] | None = None
    """Opponent of `pairwise`: `default`, or parameters and values. Default: `default`."""
    label_field: Text | None = None
    """Path to a human verdict in the case, such as `expected.label`. The report shows how often
    judge and human agree."""
    llm: LlmConfig | None = None
    """Judge of this metric; missing keys come from `llm`. Default: `llm`, else the target's
    model."""


MetricConfig: TypeAlias = Annotated[
    TextMetric
    | RegexMetric
    | NumericMetric
    | JsonSchemaMetric
    | SimilarityMetric
    | RougeMetric
    | PlainMetric
    | MeasuredMetric
    | ToolCountMetric
    | ToolAllowedMetric
    | UserFunctionMetric
    | PluginMetric
    | JudgeMetric,
    Field(discriminator="type"),
]
"""Metric, with keys that depend on its `type`."""


class EvaluationConfig(Section):
    """Scoring of candidates."""

    test_cases: TestCasesConfig
    repeats: int = Field(default=1, ge=1, le=1000)
    """Maximum evaluations of a case per candidate; above 1 for targets that answer at random. With
    a single case, finalists get up to four more."""
    deterministic: bool = False
    """Whether a case always gives a candidate the same reward. Then nothing repeats and
    rewards count as free of noise."""
    cases_per_candidate: int | None = Field(default=None, ge=1)
    """Test cases for a new candidate. Default: the algorithm decides."""
    metrics: dict[str, MetricConfig] = Field(min_length=1)
    """Metrics by name; the reward is their weighted mean."""
    objective: Literal["reward", "pareto"] = "reward"
    """Goal: the highest mean reward, or the front of trade-offs between weighted metrics.
    `pareto` never stops early and recommends by weights."""
    max_broken: float = Field(default=0.1, ge=0, lt=1)
    """Largest share of answers that may break a hard constraint; other candidates rank behind
    feasible ones."""

    @property
    def judges(self) -> dict[str, JudgeMetric]:
        """Name → metric with a model as judge."""
        return {name: item for name, item in self.metrics.items() if isinstance(item, JudgeMetric)}
