"""Metrics by themselves, as a configuration has them."""

from typing import Any

from convergence_core.config.evaluation import BaseMetric


def metric(**settings: Any) -> BaseMetric:
    """Return a metric of a function, the higher the better, with other settings where given."""
    return BaseMetric.model_validate({"type": "function", "direction": "higher", **settings})
