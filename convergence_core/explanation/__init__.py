"""Explanations of a choice: effects and eliminated candidates.

``records`` are the stored values, without NumPy. ``effects`` decomposes joint draws of the fitted
surrogate's surface at settings of the space (``settings``) with two-way fits (``fits``).
``explain.discards`` reads the evidence.
"""
