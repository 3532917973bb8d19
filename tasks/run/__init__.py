"""A run from its opening to its conclusion."""
