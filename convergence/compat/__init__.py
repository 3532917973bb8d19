"""Module names of version 0.1, found with a warning, and its configurations."""

import importlib
import importlib.abc
import importlib.machinery
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Final

OLD_NAMES: Final = {
    "convergence.caller_storage": "convergence.runtime.custom_storage",
    "convergence.live_arms": "convergence.runtime.functions",
    "convergence.mock": "tasks.mock",
    "convergence.mock.options": "tasks.mock.options",
    "convergence.mock.running": "tasks.mock.mock_server",
    "convergence_core.store": "tasks.store",
    "convergence_core.store.protocols": "convergence_core.ports",
    "convergence_core.target": "convergence_core.ports",
}
"""Old name → new one, of the modules that the documentation of 0.1 names. To go with version 0.3."""


class _OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - as above
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in OLD_NAMES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        new = OLD_NAMES[spec.name]
        warnings.warn(
            f"`{spec.name}` has moved and will be gone in version 0.3: import `{new}`.",
            DeprecationWarning,
            stacklevel=2,
        )
        return importlib.import_module(new)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module has run under its new name."""


def install() -> None:
    """Find old names from now on, before a moved package is searched for modules of its old name."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OldNames())
