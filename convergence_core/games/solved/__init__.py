"""Solved games, whose best moves are known: the measuring rod for players."""
