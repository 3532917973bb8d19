"""Written prompts over real models: writers, costs, and the learner of a run."""
