"""Judges: metrics of type ``llm_judge``, which a chat model evaluates."""
