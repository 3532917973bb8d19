"""The search: samplers, evolution, racing, stopping, recommendation."""
