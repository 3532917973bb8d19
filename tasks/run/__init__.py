"""Runs, from their opening to their conclusion."""
