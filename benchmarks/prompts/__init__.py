"""Written prompts against hill climbing and other optimizers, in a world whose optimum is known.

python -m benchmarks.prompts run --opts ours choice climb --seeds 30 --out build/prompts.csv
python -m benchmarks.prompts report build/prompts.csv

``world`` has the task, ``writer`` who edits prompts, ``hill_climb`` the baseline, ``ours`` the engine through its
public interface, and ``rivals`` other people's optimizers, each run by the Python of its own environment.
"""
