"""Opponents, listed in ``registry``."""
