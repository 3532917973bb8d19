"""Estimates of what a run costs before it makes a call."""
