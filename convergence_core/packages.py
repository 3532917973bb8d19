"""Guard against foreign packages with our names.

``tasks`` and ``flows`` are common names, and the distribution that inspired this one also installs
a ``convergence``. An installer silently lets the later distribution overwrite files, and deletes
them with it. So each process checks once at its start, without importing the packages.
"""

import importlib.util
from collections.abc import Iterable
from pathlib import PurePath

from convergence_core.errors import ForeignPackageError

MARKER = 'CONVERGENCE_PACKAGE = "convergence-optimizer"'
"""Line in the ``__init__.py`` of each of our packages."""

FIX = (
    "Install again in a separate environment: "
    "`pip uninstall the-convergence`, then `pip install --force-reinstall .` in the clone. "
    "If the folder is yours, rename it, or start the command `convergence` from elsewhere."
)


def check_packages(names: Iterable[str]) -> None:
    """Check that the named packages have our marker and lie next to each other.

    A package without ``__init__.py`` counts as foreign, since an uninstaller may have removed it.

    Raises:
        ForeignPackageError: A package is missing, foreign, or lies elsewhere than the others.
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
