"""User functions: found by name, called in threads, event loops or processes."""
