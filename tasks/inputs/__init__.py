"""Inputs of a run: configuration, cases, prices, environment, target, metrics."""
