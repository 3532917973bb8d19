"""Prefect flows: optimize, generation, sao, policy, games, fold, maintain, notify."""

from convergence_core.packages import check_packages
from tasks.prefect_support.settings import prepare

CONVERGENCE_PACKAGE = "convergence-optimizer"

check_packages(("convergence", "convergence_core", "deployments", "flows", "tasks"))
prepare()
