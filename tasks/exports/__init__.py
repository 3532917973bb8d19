"""Recommended settings in the formats of other programs."""
