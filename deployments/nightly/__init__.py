"""Deployments on a Prefect server, and the server and worker of one machine."""
