"""Evidence of a run: its candidates, their rewards, and sums over their cells."""
