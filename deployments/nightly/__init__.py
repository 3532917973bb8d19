"""The orchestrated side: deployments on a Prefect server, and server and worker of a laptop."""
