"""Whole configuration, with budget, storage, output and promotion."""

import json
import re
from typing import Literal, TypeAlias, get_args

from pydantic import Field, JsonValue

from convergence_core.config.api import CHAT_KINDS, KEY_HEADERS, ApiConfig
from convergence_core.config.base import PluginName, Section, Text
from convergence_core.config.evaluation import EvaluationConfig, JudgeMetric, LlmConfig
from convergence_core.config.feedback import FeedbackConfig
from convergence_core.config.optimization import OptimizationConfig, SocietyConfig
from convergence_core.config.prompts import PromptsConfig
from convergence_core.config.search_space import CategoricalParam, SearchSpaceConfig, TextParam

OutputFormat: TypeAlias = Literal["json", "markdown", "csv", "html"]

EPOCH_PATTERN = r"^(run|off|forever|[1-9][0-9]{0,4}[smhdw])$"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class BudgetConfig(Section):
    """Limits of a run, over targets, judges and all other calls."""

    max_usd: float | None = Field(default=None, gt=0, le=1e9)
    """USD limit; each call reserves its worst case first. Default: no limit."""
    max_calls: int | None = Field(default=None, ge=1, le=10**15)
    """Limit of calls, retries included. Default: no limit."""
    max_tokens: int | None = Field(default=None, ge=1, le=10**15)
    """Limit of prompt and answer tokens. Default: no limit."""
    max_minutes: float | None = Field(default=None, gt=0, le=525_600)
    """Limit of working minutes, without stops between resumes. Default: no limit."""
    allow_unknown_prices: bool = False
    """Whether calls of unknown price may run under `max_usd`; they count as 0 and are listed
    apart."""


class CacheConfig(Section):
    """Reuse of stored answers; `7d` is short for `{epoch: 7d}`."""

    epoch: str = Field(default="run", pattern=EPOCH_PATTERN)
    """`run`: this run's answers; `off`: none, except after a resume; `forever`: any run's;
    `7d` or `12h`: any run's up to that age. Failures are never reused."""

    @property
    def shared(self) -> bool:
        """Whether answers of other runs may be reused."""
        return self.epoch not in ("run", "off")

    @property
    def max_age_s(self) -> float | None:
        """Maximum age of another run's answer in seconds; ``None`` without a limit."""
        match = re.fullmatch(r"([0-9]+)([smhdw])", self.epoch)
        return None if match is None else float(match[1]) * _SECONDS[match[2]]


class PriceConfig(Section):
    """Prices of one model, or of a kind of target.

    `http`, `function` and `plugin` have `request` only, `browserbase` has `minute` and `proxy_gb` only.
    """

    input: float | None = Field(default=None, ge=0, le=1e9)
    """USD per million prompt tokens; needs `output`."""
    output: float | None = Field(default=None, ge=0, le=1e9)
    """USD per million answer tokens, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0, le=1e9)
    """USD per million prompt tokens read from cache. Default: as `input`."""
    cache_write: float | None = Field(default=None, ge=0, le=1e9)
    """USD per million prompt tokens written to cache. Default: as `input`."""
    request: float | None = Field(default=None, ge=0, le=1e9)
    """USD per request. Default: the shipped table's."""
    minute: float | None = Field(default=None, ge=0, le=1e9)
    """USD per started minute of a browser session."""
    proxy_gb: float | None = Field(default=None, ge=0, le=1e9)
    """USD per gigabyte through proxies (`browserbase`); required with `proxies`."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Maximum answer length of the model; bounds calls without a limit."""


class StorageConfig(Section):
    """Storage of runs."""

    path: Text = "./convergence-data"
    """Folder of tables and journal, or object storage (`s3://`, `gs://`, `az://`) for the
    tables."""
    local: Text | None = None
    """Working copy, journal and runtime state next to object storage. Default:
    `./convergence-data`."""
    journal: Text | None = Field(default=None, pattern=r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$")
    """`${ENV_NAME}` with a `postgresql://` URL: journal shared by several machines. Default: a
    local file."""

    keep_text: bool = True
    """Whether to store requests and answers as text instead of hashes."""

    @property
    def folder(self) -> str:
        """Local folder of the store, relative to the configuration."""
        return self.path if self.remote is None else self.local or "./convergence-data"

    @property
    def remote(self) -> str | None:
        """Address of object storage; ``None`` for tables in the local folder."""
        return self.path if "://" in self.path else None


class TelemetryConfig(Section):
    """Destination of spans (extra `otel`), and listeners."""

    endpoint: Text | None = None
    """URL for OpenTelemetry spans (OTLP over HTTP), such as `http://127.0.0.1:4318/v1/traces`;
    headers from `OTEL_EXPORTER_OTLP_HEADERS`. Default: none."""
    content: bool = False
    """Whether spans include redacted prompts and answers."""
    listeners: dict[PluginName, dict[str, JsonValue]] = Field(default_factory=dict)
    """Listeners with their options: `mlflow`, `wandb` (extras), or entry points of
    `convergence.listeners`."""


class OutputConfig(Section):
    """Output of a run."""

    save_path: Text = "./results"
    """Folder of results."""
    formats: list[OutputFormat] = Field(default_factory=lambda: list(get_args(OutputFormat)))
    """Kinds of files."""


class PromotionConfig(Section):
    """Conditions for replacing the champion."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Maximum probability of a false promotion, however often you check."""
    min_effect: float = Field(default=0.0, ge=0, lt=1)
    """Minimum gain in mean reward for a promotion."""
    require_adoption: bool = True
    """Whether `convergence promote` must confirm; `false`: passing the gate promotes."""


class Configuration(Section):
    """Configuration with normalized spelling, whose rules are checked."""

    api: ApiConfig
    search_space: SearchSpaceConfig
    evaluation: EvaluationConfig
    optimization: OptimizationConfig = Field(default_factory=OptimizationConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)
    cache: CacheConfig = Field(default_factory=CacheConfig)
    prices: dict[str, PriceConfig] = Field(default_factory=dict)
    """Prices by model or kind (`http`, `function`, `plugin`, `browserbase`); missing entries
    keep the shipped table's."""
    llm: LlmConfig | None = None
    society: SocietyConfig = Field(default_factory=SocietyConfig)
    prompts: PromptsConfig = Field(default_factory=PromptsConfig)
    promotion: PromotionConfig = Field(default_factory=PromotionConfig)
    feedback: FeedbackConfig = Field(default_factory=FeedbackConfig)
    storage: StorageConfig = Field(default_factory=StorageConfig)
    output: OutputConfig = Field(default_factory=OutputConfig)
    telemetry: TelemetryConfig = Field(default_factory=TelemetryConfig)

    @property
    def has_mutable_texts(self) -> bool:
        """Whether a text parameter has ``mutate``."""
        parameters = self.search_space.parameters.values()
        return any(
            isinstance(parameter, TextParam) and parameter.mutate for parameter in parameters
        )

    @property
    def trained_model(self) -> str | None:
        """Model whose adapters ratings train; ``None`` without a configured local model."""
        served = self.api.request.options.get("model") if self.api.kind == "local" else None
        is_fixed = isinstance(served, str) and "{" not in served
        return self.feedback.training.base_model_path or (str(served) if is_fixed else None)

    @property
    def llms(self) -> list[tuple[tuple[str, ...], LlmConfig]]:
        """Models that judge, think or write, each with its key."""
        llms: list[tuple[tuple[str, ...], LlmConfig]] = []
        if self.llm is not None:
            llms.append((("llm",), self.llm))
        for name, metric in self.evaluation.judges.items():
            if metric.llm is not None:
                llms.append((("evaluation", "metrics", name, "llm"), metric.llm))
        return llms

    @property
    def writes_prompts(self) -> bool:
        """Whether the run writes prompts."""
        if not self.has_mutable_texts or self.prompts.enabled is False:
            return False
        can_write = self.llm is not None or self.prompts.writer == "rules"
        return can_write and (self.prompts.enabled is True or not self.society.prefers)

    def judge_of(self, metric: JudgeMetric) -> LlmConfig | None:
        """Return the model that judges a metric; ``None`` if only an offline mock can."""
        return metric.llm or self.llm or self.target_llm

    @property
    def target_llm(self) -> LlmConfig | None:
        """Target's model as a judge; ``None`` if the configured key alone cannot reach one."""
        api = self.api
        model = self._target_model()
        is_asked = api.kind == "agno" or (api.kind in CHAT_KINDS and api.kind != "local")
        has_more = any("${" in text for text in api.request.headers.values())
        is_own_auth = api.auth.type != "api_key" or api.auth.header_name == KEY_HEADERS.get(
            api.kind
        )
        if (
            model is None
            or not is_asked
            or has_more
            or not is_own_auth
            or api.auth.type == "basic"
        ):
            return None
        prefix = "" if api.kind == "agno" else f"{api.kind}/"
        entry = api.models.get(model)
        return LlmConfig(
            model=f"{prefix}{model}",
            endpoint=api.endpoint if entry is None else entry.endpoint,
            api_key_env=api.auth.token_env,
        )

    def _target_model(self) -> str | None:
        """Return the current model, else the first choice."""
        parameter = self.search_space.parameters.get("model")
        model = self.api.deployment or self.api.request.options.get("model")
        if isinstance(parameter, CategoricalParam):
            model = parameter.choices[0] if parameter.default is None else parameter.default
        return model if isinstance(model, str) and "{" not in model else None

    def to_json(self) -> str:
        """Return this configuration as JSON with explicit defaults; it contains no secret.

        Keys keep their order. A resumed run needs it: the order of parameters decides which random
        number goes to which parameter.
        """
        return json.dumps(
            self.model_dump(mode="json"),
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )
