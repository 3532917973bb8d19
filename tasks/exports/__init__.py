"""What a run found, as other programs read it."""
