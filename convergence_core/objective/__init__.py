"""Objective of a search: rewards from metrics, constraints, trade-offs, costs."""
