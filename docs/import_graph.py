"""Import graph of the packages: modules, rooms, cycles and the height of each room."""

import ast
import functools
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("convergence", "convergence_core", "deployments", "flows", "tasks")


@functools.cache
def modules() -> dict[str, Path]:
    """Return dotted name → file of every module."""
    found: dict[str, Path] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@functools.cache
def tree(name: str) -> ast.Module:
    """Return the syntax tree of a module."""
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def module_of(name: str) -> str | None:
    """Return the project module of an imported name, or ``None`` for a foreign one."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return module → project modules that it imports, at any level."""
    found: dict[str, set[str]] = {name: set() for name in modules()}
    for name, targets in found.items():
        for node in ast.walk(tree(name)):
            named: list[str] = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                named = [one if one in modules() else node.module for one in whole]
            targets |= {module_of(one) or name for one in named}
        targets.discard(name)
    return found


def room_of(module: str) -> str:
    """Return a module's room: its folder in the package, or itself at the top level."""
    return ".".join(module.split(".")[:2])


def rooms(package: str) -> dict[str, set[str]]:
    """Return room → rooms of the same package that it imports."""
    found: dict[str, set[str]] = {
        room_of(name): set()
        for name in modules()
        # Files outside the packages, such as an image's health check, are in no room.
        if name.startswith(f"{package}.") and room_of(name) in modules()
    }
    for name, targets in imports().items():
        for target in targets:
            one, other = room_of(name), room_of(target)
            if one != other and one in found and other in found:
                found[one].add(other)
    return found


def circles(graph: Mapping[str, set[str]]) -> list[tuple[str, ...]]:
    """Return the sets of mutually reachable nodes."""

    @functools.cache
    def reached(start: str) -> frozenset[str]:
        seen: set[str] = set()
        todo = list(graph[start])
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo.extend(graph.get(node, ()))
        return frozenset(seen)

    own = {
        node: frozenset({node} | {n for n in reached(node) if node in reached(n)})
        for node in graph
    }
    return sorted({tuple(sorted(c)) for c in own.values() if len(c) > 1})


def floors(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the nodes by height, lowest first. Each node is above its imports.

    Nodes that import each other share a floor.
    """
    group = {node: circle for circle in circles(graph) for node in circle}

    @functools.cache
    def height(node: str) -> int:
        members = group.get(node, (node,))
        below = {other for one in members for other in graph[one]} - {*members}
        return 1 + max(map(height, below), default=0)

    found: dict[int, list[str]] = {}
    for node in sorted(graph):
        found.setdefault(height(node), []).append(node)
    return [found[floor] for floor in sorted(found)]
