"""Learning from outcomes, outside of a run."""
