"""Logged answers, ratings and comparisons, durable before they are acknowledged."""
