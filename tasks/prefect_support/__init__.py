"""Prefect support: settings, temporary server, heartbeats, names, orphans."""
