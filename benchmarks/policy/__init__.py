"""Proximal policy optimization on CartPole-v1 and a simulated choice; its service, killed.

python -m benchmarks.policy                  # all
python -m benchmarks.policy cartpole --seeds 5
python -m benchmarks.policy mutations --seeds 3
python -m benchmarks.policy collectors
python -m benchmarks.policy serving
"""
