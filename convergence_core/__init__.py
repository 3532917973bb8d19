"""The deciding core: data in, decisions out, no I/O.

Nothing here knows Prefect, a network or a clock. ``tasks.store`` is the only
room that touches a disk; generators of random numbers come from the caller.
"""

CONVERGENCE_PACKAGE = "convergence-optimizer"
"""Marker by which the four packages of the distribution know each other (see ``packages``)."""
