"""Web application over one results store, on this machine."""
