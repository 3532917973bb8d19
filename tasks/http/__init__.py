"""HTTP: clients, authentication, bounded bodies, retries."""
