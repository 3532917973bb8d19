"""Where candidates are evaluated when not in this process: others of this machine, or a cluster.

Prefect's task runs stay in the process of the flow, one thread each; what travels is an *order*: a
candidate, its cells, and a part of the budget. So a worker needs no Prefect, and outlives the
subflow of a generation. See docs/decisions/019-orders-travel.md.
"""

from tasks.runners.base import Runner, check_runner, make_runner, places_of
from tasks.runners.worker_pool import WorkerPool

__all__ = ["Runner", "WorkerPool", "check_runner", "make_runner", "places_of"]
