"""Persistence of a policy: experiences, versions and checkpoints."""
