"""Why a run chose what it chose: what parameters do, which cells decided, who left the race.

``records`` is what a result keeps; it needs no numpy. ``effects`` reads the fitted surrogate's
surface by whole draws of it (``paths``) at settings of the space (``settings``); ``deciding`` and
``discards`` read the evidence.
"""
