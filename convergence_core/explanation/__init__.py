"""Explanations of a choice: effects and eliminated candidates.

``records`` is what a result keeps; it needs no numpy. ``effects`` reads the fitted surrogate's
surface by draws of whole functions (``paths``) at settings of the space (``settings``);
``explain.discards`` reads the evidence.
"""
