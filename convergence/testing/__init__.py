"""Contract suites for targets and metrics, and simulated APIs and services.

The suites are plain test classes: pytest finds them by name, but this package does not import
pytest. A subclass names the plugin and its inputs, and inherits every ``test_…`` method::

    from convergence.testing import TargetContract

    class TestSearch(TargetContract):
        plugin = "acme-search"
        params = {"k": 3}
        case_input = {"query": "parcel"}
"""

from convergence.testing.metrics import MetricContract
from convergence.testing.services import (
    HOSTILE_ANSWERS,
    HostileAnswer,
    LoopbackService,
    RefusedError,
    SimulatedRequest,
    SimulatedService,
    serve_json,
)
from convergence.testing.targets import TargetContract

__all__ = [
    "HOSTILE_ANSWERS",
    "HostileAnswer",
    "LoopbackService",
    "MetricContract",
    "RefusedError",
    "SimulatedRequest",
    "SimulatedService",
    "TargetContract",
    "serve_json",
]
