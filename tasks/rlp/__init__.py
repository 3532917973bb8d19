"""Thoughts over real models: who thinks, how predictions are read, what is paid.

``wording`` says what is asked, ``channels`` and ``ladder`` how a distribution is got out of an
answer, ``thinker`` writes and predicts, ``thinking`` is the whole of it within one run.
"""
