"""The story as Prefect flows: optimize, and one generation after the other."""

from convergence_core.packages import check_packages
from flows.environment import prepare

CONVERGENCE_PACKAGE = "convergence-optimizer"

check_packages(("convergence", "convergence_core", "flows", "tasks"))
prepare()
