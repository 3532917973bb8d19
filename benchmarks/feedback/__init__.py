"""Ratings: rater consensus and live tests of adapters."""
