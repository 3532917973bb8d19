"""The whole configuration, with budget, storage, output and promotion."""

import json
import re
from typing import Literal, TypeAlias, get_args

from pydantic import Field, JsonValue

from convergence_core.config.api import CHAT_KINDS, KEY_HEADERS, ApiConfig
from convergence_core.config.base import PluginName, Section, Text
from convergence_core.config.evaluation import EvaluationConfig, LlmConfig, MetricConfig
from convergence_core.config.feedback import FeedbackConfig
from convergence_core.config.optimization import OptimizationConfig, SocietyConfig
from convergence_core.config.prompts import PromptsConfig
from convergence_core.config.search_space import CategoricalParam, SearchSpaceConfig, TextParam

OutputFormat: TypeAlias = Literal["json", "markdown", "csv", "html"]

EPOCH_PATTERN = r"^(run|off|forever|[1-9][0-9]{0,4}[smhdw])$"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


class BudgetConfig(Section):
    """What a run may spend: over its targets, judges and all other calls together."""

    max_usd: float | None = Field(default=None, gt=0, le=1e9)
    """US dollars at most. Before each call its worst case is reserved. Absent: no limit."""
    max_calls: int | None = Field(default=None, ge=1, le=10**15)
    """Calls at most, retries included. Absent: no limit."""
    max_tokens: int | None = Field(default=None, ge=1, le=10**15)
    """Tokens at most, prompts and answers. Absent: no limit."""
    max_minutes: float | None = Field(default=None, gt=0, le=525_600)
    """Minutes of work at most, from when the run begins or goes on: what Prefect needs to start does
    not count, nor does the time between a stop and its resume. Absent: no limit."""
    allow_unknown_prices: bool = False
    """Whether calls whose price is unknown may be made under `max_usd`; they count as nothing
    there, and are counted apart."""


class CacheConfig(Section):
    """Which stored answers are used again; a plain `7d` stands for `{epoch: 7d}`."""

    epoch: str = Field(default="run", pattern=EPOCH_PATTERN)
    """`run`: answers of this run (also after a resume); `off`: of the same evaluation only, after
    a resume; `forever`: of any run in this store; a duration like `7d` or `12h`: of any run, if
    they are not older when this run begins. Failures are never used again."""

    @property
    def shared(self) -> bool:
        """Whether answers of other runs may be used."""
        return self.epoch not in ("run", "off")

    @property
    def max_age_s(self) -> float | None:
        """Age in seconds beyond which an answer of another run is not used; ``None``: none."""
        found = re.fullmatch(r"([0-9]+)([smhdw])", self.epoch)
        return None if found is None else float(found[1]) * _SECONDS[found[2]]


class PriceConfig(Section):
    """Prices of one model, or of a kind of target.

    `http`, `function` and `plugin` have `request` only, `browserbase` has `minute` and `proxy_gb` only.
    """

    input: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars per million tokens of the prompt; stands beside `output`."""
    output: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars per million tokens of the answer, reasoning included."""
    cached_input: float | None = Field(default=None, ge=0, le=1e9)
    """The same for tokens of the prompt read from the provider's cache. Absent: as `input`."""
    cache_write: float | None = Field(default=None, ge=0, le=1e9)
    """The same for tokens of the prompt written to the provider's cache. Absent: as `input`."""
    request: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars for each request, whatever its length. Absent: as the shipped table says, or
    none."""
    minute: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars for each minute of a browser session, one begun counting whole (`browserbase`)."""
    proxy_gb: float | None = Field(default=None, ge=0, le=1e9)
    """US dollars for each gigabyte (10^9 bytes) through the provider's proxies (`browserbase`); needed where
    sessions may use `proxies`."""
    max_output_tokens: int | None = Field(default=None, ge=1)
    """Longest answer of the model; bounds a call that sets no limit of its own."""


class StorageConfig(Section):
    """Where runs are kept."""

    path: Text = "./convergence-data"
    """Folder of tables and journal, relative to the configuration; or an address of object storage
    (`s3://`, `gs://`, `az://`), to which the tables are published."""
    local: Text | None = None
    """With an address: folder of its working copy, of journal and runtime state, relative to the
    configuration. Absent: `./convergence-data`."""
    journal: Text | None = Field(default=None, pattern=r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$")
    """`${ENV_NAME}` of a variable that holds a `postgresql://` URL: the journal of calls is kept
    there, for several machines. Absent: a file in the folder."""

    keep_text: bool = True
    """Whether requests and answers are kept as text; `false`: as hashes only."""

    @property
    def folder(self) -> str:
        """Folder of the store on this machine, relative to the configuration."""
        return self.path if self.remote is None else self.local or "./convergence-data"

    @property
    def remote(self) -> str | None:
        """Address of object storage; ``None``: the tables stay in the folder."""
        return self.path if "://" in self.path else None


class TelemetryConfig(Section):
    """Who watches a run: where spans of calls are sent (extra `otel`), and listeners to its events."""

    endpoint: Text | None = None
    """URL that takes OpenTelemetry spans by OTLP over HTTP, e.g. `http://127.0.0.1:4318/v1/traces`.
    Headers are read from the variable `OTEL_EXPORTER_OTLP_HEADERS`. Absent: none are sent."""
    content: bool = False
    """Whether spans hold the texts of prompts and answers, redacted."""
    listeners: dict[PluginName, dict[str, JsonValue]] = Field(default_factory=dict)
    """Listeners to the events of an optimization, each with its options: `mlflow`, `wandb` (extras of these
    names), or an entry point of the group `convergence.listeners`."""


class OutputConfig(Section):
    """What is written at the end of a run."""

    save_path: Text = "./results"
    """Folder of the results, relative to the configuration."""
    formats: list[OutputFormat] = Field(default_factory=lambda: list(get_args(OutputFormat)))
    """Kinds of files."""


class PromotionConfig(Section):
    """When the candidate handed over may replace the champion."""

    alpha: float = Field(default=0.05, gt=0, lt=1)
    """Largest probability of promoting what is not ahead, however often one looks."""
    min_effect: float = Field(default=0.0, ge=0, lt=1)
    """Least difference in mean reward that is worth a promotion."""
    require_adoption: bool = True
    """Whether a person has to adopt it by `convergence promote`; `false`: a run whose gate says
    promote makes its candidate the champion."""


class Configuration(Section):
    """A configuration after all spellings are normalized and all rules were checked."""

    api: ApiConfig
    search_space: SearchSpaceConfig
    evaluation: EvaluationConfig
    optimization: OptimizationConfig = Field(default_factory=OptimizationConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)
    cache: CacheConfig = Field(default_factory=CacheConfig)
    prices: dict[str, PriceConfig] = Field(default_factory=dict)
    """Prices by model, or by kind of target (`http`, `function`, `plugin`, `browserbase`); what an entry does not name stays
    as the shipped table has it."""
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
        return any(isinstance(one, TextParam) and one.mutate for one in parameters)

    @property
    def trained_model(self) -> str | None:
        """Model whose adapters ratings train; ``None``: the configuration names none of this machine."""
        served = self.api.request.options.get("model") if self.api.kind == "local" else None
        is_fixed = isinstance(served, str) and "{" not in served
        return self.feedback.training.base_model_path or (str(served) if is_fixed else None)

    @property
    def llms(self) -> list[tuple[tuple[str, ...], LlmConfig]]:
        """Models that judge answers or their safety, think or write, each with the key where it stands."""
        found: list[tuple[tuple[str, ...], LlmConfig]] = []
        if self.llm is not None:
            found.append((("llm",), self.llm))
        for name, metric in self.evaluation.metrics.items():
            if metric.llm is not None:
                found.append((("evaluation", "metrics", name, "llm"), metric.llm))
        safety = self.feedback.safety.model
        if safety is not None and safety.form != "folder":
            found.append((("feedback", "safety", "model"), safety))
        return found

    @property
    def writes_prompts(self) -> bool:
        """Whether texts are written while a run goes on."""
        if not self.has_mutable_texts or self.prompts.enabled is False:
            return False
        can_write = self.llm is not None or self.prompts.writer == "rules"
        return can_write and (self.prompts.enabled is True or not self.society.prefers)

    @property
    def embeds_prompts(self) -> bool:
        """Whether a model tells directions of texts, by which the search compares them."""
        has_model = self.prompts.embedding_model is not None and self.llm is not None
        return self.writes_prompts and has_model

    def judge_of(self, metric: MetricConfig) -> LlmConfig | None:
        """Return the model that judges a metric; ``None``: only the stand-in of ``--offline`` could."""
        return metric.llm or self.llm or self.target_llm

    @property
    def target_llm(self) -> LlmConfig | None:
        """The target's own model as one that judges; ``None``: it has none that a key alone reaches."""
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
        prefix = {"agno": "", "plugin_chat": f"plugin/{api.plugin}/"}.get(api.kind, f"{api.kind}/")
        entry = api.models.get(model)
        return LlmConfig(
            model=f"{prefix}{model}",
            endpoint=api.endpoint if entry is None else entry.endpoint,
            api_key_env=api.auth.token_env,
        )

    def _target_model(self) -> str | None:
        """Return the model in use today, else the first on offer."""
        parameter = self.search_space.parameters.get("model")
        model = self.api.deployment or self.api.request.options.get("model")
        if isinstance(parameter, CategoricalParam):
            model = parameter.choices[0] if parameter.default is None else parameter.default
        return model if isinstance(model, str) and "{" not in model else None

    def to_json(self) -> str:
        """Return this configuration as JSON, defaults written out; no secret is in it.

        Keys keep the order they were written in: the order of parameters decides which random
        number goes to which, so a resumed run needs it.
        """
        return json.dumps(
            self.model_dump(mode="json"),
            separators=(",", ":"),
            ensure_ascii=False,
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> "Configuration":
        """Rebuild the configuration that ``to_json`` wrote.

        Raises:
            ValueError: the text was not made by ``to_json``.
        """
        return cls.model_validate(json.loads(text))
