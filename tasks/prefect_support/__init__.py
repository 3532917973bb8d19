"""Plumbing of Prefect: settings, temporary server, heartbeats, names, orphans."""
