"""Guard against other distributions' packages of our names.

``tasks`` and ``flows`` are everyday names, and the distribution that this one follows also
installs a ``convergence``. An installer lets the later distribution overwrite files silently and
deletes them with it, so each process looks once, at its start, and imports nothing for it.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import PurePath

from convergence_core.errors import ForeignPackageError

MARKER = 'CONVERGENCE_PACKAGE = "convergence-optimizer"'
"""The line that each of our packages bears in its ``__init__.py``."""

FIX = (
    "Install again in a separate environment: "
    "`pip uninstall the-convergence`, then `pip install --force-reinstall .` in the clone. "
    "If the folder is yours, rename it, or start the command `convergence` from elsewhere."
)


def check_packages(names: Iterable[str]) -> None:
    """Check that the named packages bear our marker and lie beside each other.

    A package without ``__init__.py`` counts as foreign: an uninstaller may have taken it.

    Raises:
        ForeignPackageError: a package is missing, foreign, or lies elsewhere than the others.
    """
    home: PurePath | None = None
    for name in names:
        folder = _folder(name)
        if home is None:
            home = folder.parent
        elif folder.parent != home:
            raise ForeignPackageError(
                f"package `{name}` must lie next to the others in {home}, "
                f"but was found in {folder.parent}. {FIX}"
            )


def _folder(name: str) -> PurePath:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ForeignPackageError(f"package `{name}` must be installed, but is missing. {FIX}")
    if spec.origin is None or not spec.has_location:
        places = ", ".join(spec.submodule_search_locations or ()) or "nowhere"
        raise ForeignPackageError(
            f"package `{name}` must have an `__init__.py`, but none was found in {places}. {FIX}"
        )
    file = PurePath(spec.origin)
    if file.name != "__init__.py":
        raise ForeignPackageError(f"`{name}` must be a package, but {file} is a module. {FIX}")
    source = getattr(spec.loader, "get_source", lambda _: None)(name) or ""
    if MARKER not in source.splitlines():
        raise ForeignPackageError(
            f"package `{name}` must bear our marker, but {file} belongs to another distribution. {FIX}"
        )
    return file.parent
