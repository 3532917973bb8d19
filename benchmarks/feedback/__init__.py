"""Ratings: consensus, reward parts, active selection."""
