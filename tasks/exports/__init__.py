"""Recommended configurations in the forms of other programs."""
