"""Runners: evaluation in other processes or on a cluster.

Prefect's task runs stay in the process of the flow, one thread each; what travels is a *work item*:
a candidate, its cells, and a part of the budget. So a worker needs no Prefect, and outlives the
subflow of a generation. See docs/decisions/019-work-items.md.
"""

from tasks.runners.worker_pool import Runner, WorkerPool, check_runner, make_runner, n_workers_of

__all__ = ["Runner", "WorkerPool", "check_runner", "make_runner", "n_workers_of"]
