"""Deciding core: data in, decisions out, no I/O.

Nothing here depends on Prefect, a network or a clock. ``tasks.store`` is the only room that
accesses a disk; callers pass random generators.
"""

CONVERGENCE_PACKAGE = "convergence-optimizer"
"""Marker that identifies the four packages of the distribution (see ``packages``)."""
