"""Metrics: measured numbers of an answer, user evaluators, judges."""
