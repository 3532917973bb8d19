"""Shipped files: in the package when installed, in ``data/`` in a checkout."""

from pathlib import Path


def shipped(name: str) -> Path:
    """Return the path of a shipped file, e.g. ``prices/prices.yaml``."""
    # Installed, the data lie in the package of the front door, which lies beside this one.
    root = Path(__file__).resolve().parents[2]
    installed, checkout = root / "convergence/_data" / name, root / "data" / name
    return installed if installed.is_file() else checkout
