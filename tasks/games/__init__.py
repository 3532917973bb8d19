"""Execution for language games: programs in a limited process."""
