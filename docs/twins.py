"""Griffe extension that documents pairs of generated functions by their common source.

``runtime_select, runtime_select_sync = _twins(_runtime_select)`` has no static signature or
docstring, so the reference shows those of ``_runtime_select``.
"""

from typing import Any

import griffe

MODULE = "runtime.functions"


class Twins(griffe.Extension):
    """Extension that gives each pair its source function's signature and docstring."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:  # noqa: ARG002
        """Rename the functions after the package has loaded."""
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
