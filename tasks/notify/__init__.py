"""Notices for people, and events of optimized systems."""
