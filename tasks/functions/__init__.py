"""Functions of the user: found by name, called in threads, event loops or processes."""
