"""Web application of a results store, on this machine."""
