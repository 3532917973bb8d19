"""Written prompts against hill climbing and other optimizers, in a world with a known optimum.

python -m benchmarks.prompts --opts ours climb --seeds 30

``world`` holds the task, ``writer`` the prompt editor, ``hill_climb`` the baseline, ``ours`` the engine through its
public interface, and ``rivals`` GEPA, which runs in its own Python environment.
"""
