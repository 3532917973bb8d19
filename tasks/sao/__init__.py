"""Preferences: a model writes prompts, has them answered, judges the answers; nothing is decided here."""
