"""Contract suites for targets and metrics, and simulated APIs and services.

The suites are plain classes of tests: pytest finds them by name, and nothing of pytest is imported here.
A subclass says which plugin is meant and what it is asked; every ``test_…`` method is inherited::

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
