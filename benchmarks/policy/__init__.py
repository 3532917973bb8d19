"""Proximal policy optimization beside bandits, at equal evaluations.

python -m benchmarks.policy --seeds 10
"""
