"""Targets: a Python function, an HTTP endpoint, or a chat model."""
