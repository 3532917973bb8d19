"""Prefect's plumbing: settings, temporary server, signs of life, names, subflows left behind."""
