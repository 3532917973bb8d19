"""Thoughts of real models: prompts, calls and payment.

``prompts`` says what is asked, ``thought_writer`` asks and reads, ``learner`` is the whole of it within one run;
``model_calls`` and ``learner_calls`` are those of every learner.
"""
