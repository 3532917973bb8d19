"""Runners: evaluation in other processes or on a cluster.

Prefect's task runs stay in the flow's process, one thread each. They send *work items*: a
candidate, its cells, and a part of the budget. So a worker needs no Prefect, and outlives a
generation's subflow. See docs/decisions/019-work-items.md.
"""

from tasks.runners.worker_pool import Runner, WorkerPool, check_runner, make_runner, n_workers_of

__all__ = ["Runner", "WorkerPool", "check_runner", "make_runner", "n_workers_of"]
