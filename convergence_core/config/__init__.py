"""``optimization.yaml`` as frozen models: the only entry for external data.

The input is text; the output is a ``Configuration``, or a ``ConfigurationError`` with every
problem. This package opens no files.
"""

from convergence_core.config.api import (
    ApiConfig,
    ApiKind,
    AuthConfig,
    MessageTemplate,
    ModelEndpoint,
    RequestConfig,
    ResponseConfig,
)
from convergence_core.config.evaluation import (
    Direction,
    EvaluationConfig,
    JudgeMetric,
    LlmConfig,
    MetricConfig,
    ScaleConfig,
    TestCasesConfig,
)
from convergence_core.config.loader import (
    parse_configuration,
    parse_mapping,
    parse_stored,
    stored_mapping,
)
from convergence_core.config.models import (
    BudgetConfig,
    CacheConfig,
    Configuration,
    OutputConfig,
    PriceConfig,
    StorageConfig,
)
from convergence_core.config.optimization import (
    EarlyStoppingConfig,
    EvolutionConfig,
    ExecutionConfig,
    LearningConfig,
    MabConfig,
    OptimizationConfig,
    RlpConfig,
    SocietyConfig,
)
from convergence_core.config.schema import ReferenceRow, json_schema, reference
from convergence_core.config.search_space import (
    BooleanParam,
    CategoricalParam,
    FloatParam,
    IntParam,
    ParameterConfig,
    SearchSpaceConfig,
    TextParam,
)

__all__ = [
    "ApiConfig",
    "ApiKind",
    "AuthConfig",
    "BooleanParam",
    "BudgetConfig",
    "CacheConfig",
    "CategoricalParam",
    "Configuration",
    "Direction",
    "EarlyStoppingConfig",
    "EvaluationConfig",
    "EvolutionConfig",
    "ExecutionConfig",
    "FloatParam",
    "IntParam",
    "JudgeMetric",
    "LearningConfig",
    "LlmConfig",
    "MabConfig",
    "MessageTemplate",
    "MetricConfig",
    "ModelEndpoint",
    "OptimizationConfig",
    "OutputConfig",
    "ParameterConfig",
    "PriceConfig",
    "ReferenceRow",
    "RequestConfig",
    "ResponseConfig",
    "RlpConfig",
    "ScaleConfig",
    "SearchSpaceConfig",
    "SocietyConfig",
    "StorageConfig",
    "TestCasesConfig",
    "TextParam",
    "json_schema",
    "parse_configuration",
    "parse_mapping",
    "parse_stored",
    "reference",
    "stored_mapping",
]
