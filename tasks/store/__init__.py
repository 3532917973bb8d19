"""Persistence of results, paid calls and the runtime state."""
