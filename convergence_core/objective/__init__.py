"""What a search seeks: rewards from metrics, constraints, trade-offs, prices of asking."""
