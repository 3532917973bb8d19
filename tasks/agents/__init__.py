"""Agents as targets: model calls, tools, and protection against writes."""
