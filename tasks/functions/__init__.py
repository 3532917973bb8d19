"""User functions: loading by name, and calls in threads, event loops or processes."""
