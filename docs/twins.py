"""Griffe extension: functions that a decorator makes in pairs, shown by what they are made of.

``runtime_select, runtime_select_sync = _twins(_runtime_select)`` has neither signature nor
docstring for who only reads it; the reference shows those of ``_runtime_select``.
"""

from typing import Any

import griffe

MODULE = "runtime.functions"


class Twins(griffe.Extension):
    """Gives each awaited function the signature and docstring of what it waits for."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:  # noqa: ARG002
        """Rename the functions once the package is read."""
        if pkg.name != "convergence":
            return
        module = pkg[MODULE]
        for private in [name for name in module.members if name.startswith("_")]:
            name = private.removeprefix("_")
            if name in map(str, module.exports or ()):
                function = module.members.pop(private)
                function.name = name
                function.labels.add("async")
                module.set_member(name, function)
