"""Telemetry: spans of calls for external monitoring."""
