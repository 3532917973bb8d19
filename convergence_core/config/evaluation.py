"""``evaluation``, ``llm``: test cases, metrics, and the models that judge."""

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from convergence_core.config.base import EnvName, FunctionPath, PluginName, Readers, Section, Text

MetricType: TypeAlias = Literal[
    "exact_match",
    "contains",
    "regex",
    "numeric",
    "json_schema",
    "similarity",
    "bleu",
    "rouge",
    "checks",
    "latency_ms",
    "cost_usd",
    "first_token_ms",
    "success_rate",
    "tool_choice",
    "tool_arguments",
    "tool_calls",
    "tool_allowed",
    "function",
    "plugin",
    "llm_judge",
]
Direction: TypeAlias = Literal["higher", "lower"]
SimilarityMethod: TypeAlias = Literal[
    "levenshtein", "damerau_levenshtein", "jaro_winkler", "jaccard"
]
RougeMethod: TypeAlias = Literal["rouge1", "rouge2", "rougeL"]

LLM_PROVIDERS = ("openai", "azure", "groq", "gemini", "anthropic", "plugin")
"""Providers that the name of a judge's model may begin with."""


def provider_of(model: object) -> str | None:
    """Return the provider that a model's name begins with; ``None``: it names none."""
    found = re.match(rf"({'|'.join(LLM_PROVIDERS)})/.", model) if isinstance(model, str) else None
    return found[1] if found else None


class LlmConfig(Section):
    """A chat model that judges or writes, behind an OpenAI-compatible endpoint or Anthropic's own."""

    nullable = frozenset({"temperature"})

    model: Text
    """Name of the model; a leading `openai/`, `azure/`, `groq/`, `gemini/` or `anthropic/` names the provider,
    `plugin/NAME/` one that an installed package offers by the group `convergence.providers`."""
    endpoint: Text | None = None
    """URL. Absent: that of the provider which `model` names; `azure` has none. `base_url` is read too."""
    api_key_env: EnvName | None = None
    """Environment variable that holds the key. Absent: no key is sent, which only an `endpoint` of
    your own can do without."""
    temperature: float | None = Field(default=0.0, ge=0, le=2)
    """How random its answers are. `null`: not sent, for models that refuse it."""
    max_tokens: int = Field(default=500, ge=1, le=1_000_000)
    """Longest answer, in tokens."""
    timeout_seconds: float = Field(default=60.0, gt=0, le=86_400)
    """Longest duration of one call, in seconds."""
    max_response_bytes: int = Field(default=10_000_000, ge=1_000, le=1_000_000_000)
    """Most bytes of an answer, after decompression; a larger one is not read to its end."""
    parallel_workers: int = Field(default=4, ge=1, le=512)
    """Calls in flight at most."""


class TestCasesConfig(Section):
    """Where the test cases are. A plain text stands for `path`, a plain list for `inline`."""

    __test__ = False  # not a class of tests

    path: Text | None = None
    """File relative to the configuration: JSON, JSONL, YAML, CSV or parquet."""
    inline: list[dict[str, JsonValue]] | None = None
    """The cases themselves: `id`, `input`, `expected`, `weight`, `tags`, `group`, `description`."""
    approved: Text | None = None
    """JSONL file of the cases that `convergence review` approved, relative to the configuration. They are read
    after the others; it need not exist yet."""
    games_share: float = Field(default=0.2, gt=0, le=1)
    """Share of all cases' weight that the approved cases of games have together at most; theirs is lowered to
    it, so that a critic whose inputs nobody asks cannot turn the search. 1: no limit."""
    holdout: float = Field(default=0.0, ge=0, le=0.9)
    """Share of the cases that the search never sees; the winner is judged on them at the end. A `group`
    of cases is held out whole."""


class ScaleConfig(Section):
    """The metric's values that are worth reward 1 and reward 0; linear between."""

    good: float
    """Value worth reward 1."""
    bad: float
    """Value worth reward 0."""


_COMPARING = (
    *("exact_match", "contains", "regex", "numeric", "json_schema", "similarity", "bleu"),
    *("rouge", "checks", "function", "llm_judge"),
)
_EXPECTING = Readers((*_COMPARING, "tool_choice", "tool_arguments", "tool_allowed"))
_ANSWERS = Readers((*_EXPECTING.kinds, "tool_calls"))
_CASED = Readers(
    ("exact_match", "contains", "regex", "similarity", "bleu", "tool_arguments"),
)
_NUMERIC, _PLUGIN, _JUDGE = Readers(("numeric",)), Readers(("plugin",)), Readers(("llm_judge",))


class MetricConfig(Section):
    """One measured number of every answer."""

    type: MetricType
    """What is measured; `checks` reads a list of checks from each case, `llm_judge` pays for it, `first_token_ms` needs `api.request.stream`, `plugin` is
    what an installed package offers. Default: `plugin` when `plugin` is written, else the metric's own name
    if it is a type (`accuracy` means `exact_match`), else `function`. `higher_is_better` and `lower_is_better` are read as
    `direction`."""
    weight: float = Field(default=1.0, ge=0, le=1e9)
    """Share in the reward, relative to the other metrics'; 0: only shown and constrained."""
    direction: Direction
    """Which values are good. Default: what `scale` says, else `lower` for `latency_ms`,
    `first_token_ms`, `cost_usd` and `tool_calls`, else `higher`."""
    scale: ScaleConfig | None = None
    """How values become rewards. Default: values are rewards in [0, 1]; `latency_ms` 0 to 5,000,
    `first_token_ms` 0 to 5,000, `cost_usd` 0 to 1, `tool_calls` 0 to 10."""
    min: float | None = None
    """Hard constraint: an answer whose value lies below is worth reward 0."""
    max: float | None = None
    """Hard constraint: an answer whose value lies above is worth reward 0."""
    field: Annotated[Text | None, _ANSWERS] = None
    """Dotted path into the result before it is compared or judged. Absent: the whole result, or
    its `tool_calls` (types `tool_choice`, `tool_arguments`, `tool_calls`, `tool_allowed`)."""
    expected_field: Annotated[Text | None, _EXPECTING] = None
    """Dotted path into the case's `expected`. Absent: the whole value; `tool_calls` (types `tool_choice`
    and `tool_arguments`); no further tools are forbidden (type `tool_allowed`). `llm_judge` judges only
    cases that have it, `checks` leaves out those whose list is empty."""
    forbidden: Annotated[list[Text], Readers(("tool_allowed",))] = Field(default_factory=list)
    """Names of tools that must not be called, `*` for any letters (type `tool_allowed`), beside those that
    `expected_field` names."""
    pattern: Annotated[Text | None, Readers(("regex",))] = None
    """Regular expression (type `regex`). Absent: the case's `expected` is the expression."""
    tolerance: Annotated[float | None, _NUMERIC] = Field(default=None, ge=0)
    """Largest absolute difference that counts as equal (type `numeric`). Absent: 0."""
    relative_tolerance: Annotated[float | None, _NUMERIC] = Field(default=None, ge=0)
    """Largest difference relative to the expected number (type `numeric`). Absent: 0."""
    json_schema: Annotated[dict[str, JsonValue] | Text | None, Readers(("json_schema",))] = Field(
        default=None, alias="schema"
    )
    """JSON Schema, or the path of one (type `json_schema`). Absent: the case's `expected` is the
    schema."""
    case_sensitive: Annotated[bool, _CASED] = True
    """Whether capitals matter (types `exact_match`, `contains`, `regex`, `similarity`, `bleu`, `tool_arguments`)."""
    method: Annotated[Literal[SimilarityMethod, RougeMethod], Readers(("similarity", "rouge"))] = (
        "levenshtein"
    )
    """How alike two texts are, in [0, 1] (type `similarity`): edits per character
    (`damerau_levenshtein`: swaps of neighbours are one edit), `jaro_winkler` for names and other
    short texts, `jaccard` for the share of words in common. Type `rouge`: F1 of words, of pairs of words, or
    of the longest common subsequence; default there: `rougeL`."""
    function: Annotated[FunctionPath | None, Readers(("function",))] = None
    """Python function (type `function`): `module:name` or `path/to/file.py:name`."""
    plugin: Annotated[PluginName | None, _PLUGIN] = None
    """Name of an entry point of the group `convergence.metrics` (type `plugin`)."""
    plugin_options: Annotated[dict[str, JsonValue], _PLUGIN] = Field(default_factory=dict)
    """Options that the plugin reads (type `plugin`)."""
    mode: Annotated[Literal["rating", "pass_fail", "pairwise"], _JUDGE] = "rating"
    """What a judge says (type `llm_judge`): a rating from 1 to 10, pass or fail, or which of two
    answers is better, asked in both orders. All become values in [0, 1]: a rating r is worth
    (r - 1) / 9."""
    rubric: Annotated[Text | None, _JUDGE] = None
    """What a good answer is, in words for the judge (type `llm_judge`); either this or
    `rubric_path`. Absent: one is written from `api.description`."""
    rubric_path: Annotated[Text | None, _JUDGE] = None
    """File that holds the rubric, relative to the configuration (type `llm_judge`)."""
    votes: Annotated[int, _JUDGE] = Field(default=1, ge=1, le=99)
    """How often the judge is asked (type `llm_judge`), an odd number; its votes are averaged."""
    champion: Annotated[Literal["default"] | dict[str, JsonValue] | None, _JUDGE] = None
    """Whose answer `mode: pairwise` compares with: `default`, the parameters' defaults, or a
    mapping of parameters to values. Absent: `default`."""
    label_field: Annotated[Text | None, _JUDGE] = None
    """Dotted path into the case to a person's own judgement (type `llm_judge`), e.g.
    `expected.label`, in the form of the mode: 1 to 10, or true and false; none for pairs. The
    report tells how often judge and person agree."""
    llm: Annotated[LlmConfig | None, _JUDGE] = None
    """The judge of this metric (type `llm_judge`), with the keys of `llm`. Those not written are
    taken from the configuration's `llm`, but for `endpoint` and `api_key_env` where it is another
    endpoint or provider. Absent: the configuration's `llm`, else the target's own model."""


class EvaluationConfig(Section):
    """How a candidate is judged."""

    test_cases: TestCasesConfig
    repeats: int = Field(default=1, ge=1, le=1000)
    """How often one case may be asked of one candidate; above 1 for targets that answer at
    random. Where there is one case, `thompson` and `mab_evolution` ask leaders and finalists it up
    to four times more, to tell noise from merit."""
    deterministic: bool = False
    """Whether the same case always gets the same reward, whenever a candidate is asked it. No
    cell is asked twice then, by the final test neither, and rewards count as free of noise."""
    cases_per_candidate: int | None = Field(default=None, ge=1)
    """Test cases a new candidate is asked. Absent: the algorithm decides."""
    metrics: dict[str, MetricConfig] = Field(min_length=1)
    """Metrics by name; the reward is their weighted mean."""
    objective: Literal["reward", "pareto"] = "reward"
    """What the search seeks: the highest mean reward, or the whole front of trade-offs between the
    metrics that have a weight. A `pareto` run recommends by the weights all the same; it never
    stops early."""
    max_broken: float = Field(default=0.1, ge=0, lt=1)
    """Share of a candidate's answers that may break a hard constraint (`min`, `max` of a metric).
    A candidate that probably breaks one more often is not recommended while another one is
    feasible."""

    @property
    def judges(self) -> dict[str, MetricConfig]:
        """Metrics that a model judges, by name."""
        return {
            name: metric for name, metric in self.metrics.items() if metric.type == "llm_judge"
        }
