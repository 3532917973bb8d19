"""Language games: plays between roles, scored by code, kept by a meta-critic."""
