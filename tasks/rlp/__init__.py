"""Thoughts of real models: prompts, calls and payment.

``prompts`` words the requests, ``thought_writer`` sends them and reads the replies, ``learner``
runs RLP within a run. Every learner uses ``learner_calls``.
"""
