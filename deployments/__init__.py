"""Deployments for Prefect workers, and a one-process alternative."""

CONVERGENCE_PACKAGE = "convergence-optimizer"
