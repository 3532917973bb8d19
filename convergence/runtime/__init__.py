"""The Python interface at run time: arms chosen per request, rewards learned.

Usually reached as ``convergence.runtime_select`` and its sisters; see ``functions``.
"""

from convergence.runtime.functions import (
    RewardMetric,
    RuntimeArm,
    RuntimeConfig,
    RuntimeSelection,
    configure_runtime,
    configure_runtime_sync,
    runtime_evidence,
    runtime_evidence_sync,
    runtime_get_decision,
    runtime_get_decision_sync,
    runtime_quality,
    runtime_quality_sync,
    runtime_select,
    runtime_select_sync,
    runtime_update,
    runtime_update_sync,
)

__all__ = [
    "RewardMetric",
    "RuntimeArm",
    "RuntimeConfig",
    "RuntimeSelection",
    "configure_runtime",
    "configure_runtime_sync",
    "runtime_evidence",
    "runtime_evidence_sync",
    "runtime_get_decision",
    "runtime_get_decision_sync",
    "runtime_quality",
    "runtime_quality_sync",
    "runtime_select",
    "runtime_select_sync",
    "runtime_update",
    "runtime_update_sync",
]
