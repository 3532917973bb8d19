"""Solved games, with known best moves, for measuring players."""
