"""Proximal policy optimization against bandits, at equal evaluations.

python -m benchmarks.policy --seeds 10
"""
