"""Older spellings: configurations of the-convergence 0.1, and names that have moved."""
