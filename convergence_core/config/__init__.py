"""``optimization.yaml`` as frozen models: the only entry point for external data.

The input is text; the output is a ``Configuration``, or a ``ConfigurationError`` with every
problem. This package opens no files.
"""

from convergence_core.config.api import ApiConfig, AuthConfig
from convergence_core.config.evaluation import (
    EvaluationConfig,
    JudgeMetric,
    LlmConfig,
    MetricConfig,
    ScaleConfig,
)
from convergence_core.config.loader import (
    parse_configuration,
    parse_mapping,
    parse_stored,
    stored_mapping,
)
from convergence_core.config.models import CacheConfig, Configuration
from convergence_core.config.optimization import RlpConfig
from convergence_core.config.schema import json_schema
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
    "AuthConfig",
    "BooleanParam",
    "CacheConfig",
    "CategoricalParam",
    "Configuration",
    "EvaluationConfig",
    "FloatParam",
    "IntParam",
    "JudgeMetric",
    "LlmConfig",
    "MetricConfig",
    "ParameterConfig",
    "RlpConfig",
    "ScaleConfig",
    "SearchSpaceConfig",
    "TextParam",
    "json_schema",
    "parse_configuration",
    "parse_mapping",
    "parse_stored",
    "stored_mapping",
]
