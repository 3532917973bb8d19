"""Execution of a run, for the Python interface and the command line."""
