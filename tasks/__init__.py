"""Effects of runs: targets, metrics, files, Prefect tasks."""

CONVERGENCE_PACKAGE = "convergence-optimizer"
