"""What touches the world: targets, metrics, files, Prefect tasks; one effect each."""

CONVERGENCE_PACKAGE = "convergence-optimizer"
