"""The whole configuration, as one frozen value."""

import json

from pydantic import Field

from convergence_core.config.api import ApiConfig
from convergence_core.config.base import Section
from convergence_core.config.budget import BudgetConfig, CacheConfig, LlmConfig, PriceConfig
from convergence_core.config.evaluation import EvaluationConfig
from convergence_core.config.optimization import (
    OptimizationConfig,
    OutputConfig,
    StorageConfig,
)
from convergence_core.config.promotion import PromotionConfig
from convergence_core.config.search_space import SearchSpaceConfig
from convergence_core.config.society import SocietyConfig


class Configuration(Section):
    """A configuration after all spellings are normalized and all rules were checked."""

    api: ApiConfig
    search_space: SearchSpaceConfig
    evaluation: EvaluationConfig
    optimization: OptimizationConfig = Field(default_factory=OptimizationConfig)
    budget: BudgetConfig = Field(default_factory=BudgetConfig)
    cache: CacheConfig = Field(default_factory=CacheConfig)
    prices: dict[str, PriceConfig] = Field(default_factory=dict)
    """Prices by model, or by kind of target (`http`, `function`); what an entry does not name stays
    as the shipped table has it."""
    llm: LlmConfig | None = None
    society: SocietyConfig = Field(default_factory=SocietyConfig)
    promotion: PromotionConfig = Field(default_factory=PromotionConfig)
    storage: StorageConfig = Field(default_factory=StorageConfig)
    output: OutputConfig = Field(default_factory=OutputConfig)

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
