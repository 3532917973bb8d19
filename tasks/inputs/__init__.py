"""Inputs of a run: configuration, test cases, prices, environment, target and metrics."""
