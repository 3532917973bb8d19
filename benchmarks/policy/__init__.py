"""Proximal policy optimization beside others, and its service, killed.

python -m benchmarks.policy                  # all that needs no library of others
python -m benchmarks.policy cartpole --seeds 5
python -m benchmarks.policy mutations --seeds 5
python -m benchmarks.policy variants --seeds 10
python -m benchmarks.policy planted --seeds 20
python -m benchmarks.policy collectors
python -m benchmarks.policy serving

Stable-Baselines3 needs an environment in which it is installed beside this project; see ``stable_baselines``::

python -m benchmarks.policy cartpole --seeds 5 --beside
python -m benchmarks.policy variants --seeds 10 --learners MaskablePPO
python -m benchmarks.policy planted --seeds 20 --learners MaskablePPO
"""
