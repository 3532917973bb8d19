"""Learning from outcomes outside a run."""
