"""Prompt writing with real models: writers, costs, and the learner of a run."""
