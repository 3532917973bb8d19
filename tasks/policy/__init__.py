"""Served policy: decisions, durable experiences, updates, checkpoints."""
