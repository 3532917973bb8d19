"""Written prompts against hill climbing and other optimizers, in a world whose optimum is known.

python -m benchmarks.prompts --opts ours climb --seeds 30

``world`` has the task, ``writer`` who edits prompts, ``hill_climb`` the baseline, ``ours`` the engine through its
public interface, and ``rivals`` GEPA, run by the Python of its own environment.
"""
