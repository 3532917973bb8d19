"""Judges: metrics of type ``llm_judge``, whose value a chat model gives."""
