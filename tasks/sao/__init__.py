"""Calls and files of SAO: prompts, answers, judgements, datasets.

Nothing is decided here.
"""
