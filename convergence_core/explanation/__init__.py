"""Explanations of a choice: effects, deciding cells, eliminated candidates.

``records`` is what a result keeps; it needs no numpy. ``effects`` reads the fitted surrogate's
surface by draws of whole functions (``paths``) at settings of the space (``settings``);
``deciding_cells`` and ``discards`` read the evidence.
"""
