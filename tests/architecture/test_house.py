"""Rules that keep the rooms readable. Numbers of exceptions may only shrink."""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from docs.import_graph import PACKAGES, ROOT, circles, floors, imports, modules, rooms, tree

MOST_FILES = 25
"""In one folder, besides ``__init__.py``."""
MOST_LOOSE = 12
"""Modules on the top of a package."""
MOST_PARAMETERS = 12
MOST_LINES = 50
"""Of a function, from ``def`` to its end, without its docstring."""
FRAGMENT = 60
"""A module with fewer lines and one importer belongs to that one."""
MOST_CHARACTERS = 80
"""In the first line of a module's docstring."""
LONGEST_CHAIN = 12
"""Of imports between the rooms of a package."""
QUESTIONS = {
    "What",
    "How",
    "Who",
    "Which",
    "Whether",
    "When",
    "Where",
    "Why",
    "Whose",
    "Is",
    "Has",
    "Does",
    "Are",
}
TWICE = {"ApiConfig", "EvaluationConfig", "SearchSpaceConfig", "StorageConfig"}
"""Public classes of a name that the Python interface shares with the configuration's models."""

EXCEPTIONS = {
    "heaps": 0, "circles": 0, "room circles": 0, "twice": 0, "ing": 6, "fragments": 0, "questions": 0,
    "long docstrings": 0, "parameters": 0, "lines": 0,
}  # fmt: skip
"""To come down to 0; six modules may end in -ing, for there it is the field's word."""


def is_template(name: str) -> bool:
    """Whether it is an example that ``convergence init`` writes for its user."""
    return name.startswith("convergence.templates.")


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name in modules():
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name, node


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether its signature is a command's, a flow's or a route's: options are parameters there."""
    text = " ".join(ast.unparse(one) for one in node.decorator_list)
    words = (".command", "@app", "flow(", ".get(", ".post(", ".delete(")
    return any(word in text for word in words) or "Annotated[" in ast.unparse(node.args)


def n_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    assert node.end_lineno is not None
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return node.end_lineno - body[0].lineno + 1 if body else 0


def test_no_folder_is_a_heap():
    folders = defaultdict(set)
    for path in modules().values():
        if path.name != "__init__.py":
            folders[path.parent].add(path.name)
    full = {
        str(folder.relative_to(ROOT)): len(names)
        for folder, names in folders.items()
        if len(names) > MOST_FILES
    }
    assert len(full) <= EXCEPTIONS["heaps"], full
    loose = {package: len(folders[ROOT / package]) for package in PACKAGES}
    assert max(loose.values()) <= MOST_LOOSE, loose


def test_no_modules_import_each_other_in_a_circle():
    found = circles(imports())
    assert len(found) <= EXCEPTIONS["circles"], found


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_lie_on_few_floors(package):
    found = circles(rooms(package))
    assert len(found) <= EXCEPTIONS["room circles"], found
    assert len(floors(rooms(package))) <= LONGEST_CHAIN


def test_a_public_class_is_defined_once():
    homes = defaultdict(list)
    for name in modules():
        for node in tree(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    twice = {name: found for name, found in homes.items() if len(found) > 1 and name not in TWICE}
    assert len(twice) <= EXCEPTIONS["twice"], twice


def test_modules_are_named_by_nouns():
    found = [name for name in modules() if name.endswith("ing")]
    assert len(found) <= EXCEPTIONS["ing"], found


def test_fragments_are_joined_to_their_one_importer():
    importers = defaultdict(set)
    for name, targets in imports().items():
        for target in targets:
            importers[target].add(name)
    found = [
        f"{name} (for {next(iter(importers[name]))})"
        for name, path in modules().items()
        if path.name != "__init__.py"
        and len(importers[name]) == 1
        and len(path.read_text(encoding="utf-8").splitlines()) < FRAGMENT
        and not name.startswith("flows.")
    ]
    assert len(found) <= EXCEPTIONS["fragments"], found


def test_module_docstrings_are_short_noun_phrases():
    questions, long = [], []
    for name in modules():
        first = (ast.get_docstring(tree(name)) or "").split("\n")[0]
        assert first, f"{name} has no docstring"
        if (
            first.split()[0] in QUESTIONS
            or first.startswith("From ")
            or first.split(" ")[0].endswith("?")
        ):
            questions.append(name)
        if len(first) > MOST_CHARACTERS:
            long.append(name)
    assert len(questions) <= EXCEPTIONS["questions"], questions
    assert len(long) <= EXCEPTIONS["long docstrings"], long


def test_signatures_and_functions_are_short():
    many, long = [], []
    for name, node in functions():
        if is_template(name) or is_command(node):
            continue
        spec = node.args
        parameters = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
        n_own = len([one for one in parameters if one.arg not in {"self", "cls"}])
        if n_own > MOST_PARAMETERS:
            many.append(f"{name}.{node.name} ({n_own})")
        if n_lines(node) > MOST_LINES:
            long.append(f"{name}.{node.name} ({n_lines(node)})")
    assert len(many) <= EXCEPTIONS["parameters"], many
    assert len(long) <= EXCEPTIONS["lines"], long


def test_flows_tell_and_do_nothing_else():
    for name in modules():
        if name.startswith("flows"):
            for node in ast.walk(tree(name)):
                assert not isinstance(node, ast.Try), f"{name} catches"
            foreign = {"threading", "httpx", "subprocess", "socket"}
            names = {
                alias.name
                for node in ast.walk(tree(name))
                if isinstance(node, ast.Import)
                for alias in node.names
            }
            assert not foreign & names, f"{name} imports {foreign & names}"
