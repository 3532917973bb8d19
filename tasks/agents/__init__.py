"""Agents as targets: their model calls, their tools, and what must not be written."""
