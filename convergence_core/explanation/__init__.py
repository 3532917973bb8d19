"""Explanations of a choice: effects and eliminated candidates.

``records`` is what a result keeps; it needs no numpy. ``effects`` reads the fitted surrogate's
surface by joint draws at settings of the space (``settings``), fitted two ways (``fits``);
``explain.discards`` reads the evidence.
"""
