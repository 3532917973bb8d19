"""Telemetry: spans of calls for whoever watches a run from outside."""
