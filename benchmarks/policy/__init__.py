"""Proximal policy optimization on CartPole-v1 and on a simulated choice of mutations.

python -m benchmarks.policy                  # both
python -m benchmarks.policy cartpole --seeds 5
python -m benchmarks.policy mutations --seeds 3
"""
