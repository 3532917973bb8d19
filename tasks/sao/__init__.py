"""Calls and files of SAO: prompts, answers, judgements, datasets.

The decisions are made in ``convergence_core.sao``.
"""
