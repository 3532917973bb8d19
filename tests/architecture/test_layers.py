"""Imports run one way: convergence → deployments → flows → tasks → convergence_core."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = ("convergence", "convergence_core", "deployments", "flows", "tasks")

MAY_IMPORT = {
    "convergence_core": {"convergence_core"},
    "tasks": {"tasks", "convergence_core"},
    "flows": {"flows", "tasks", "convergence_core"},
    "deployments": {"deployments", "flows", "tasks", "convergence_core"},
    "convergence": {"convergence", "deployments", "flows", "tasks", "convergence_core"},
}

CORE_MAY_NOT_IMPORT = {
    "apsw", "asyncio", "concurrent", "duckdb", "fcntl", "gc", "glob", "httpx", "importlib_metadata", "io",
    "matplotlib", "multiprocessing", "obstore", "openai", "os", "pathlib", "polars", "prefect", "psycopg",
    "queue", "random", "requests", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile",
    "threading", "time", "urllib",
}  # fmt: skip
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("date", "today")}
PURE = {"urllib.parse", "pathlib"}
"""Modules of which the core may use what touches nothing: addresses taken apart, pure paths."""
PURE_PATHS = {"PurePath", "PurePosixPath"}
TASKS_WITH_PREFECT = {
    "steps.py",
    "artifacts.py",
    "system_events.py",
    "notifier.py",
    "approval.py",
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported(path: Path) -> frozenset[str]:
    """Return every absolute module name that a file imports, at any depth."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add(node.module or "")
    return frozenset(names)


def tops(path: Path) -> set[str]:
    # `urllib.parse` takes addresses apart and calls nobody.
    return {name.split(".")[0] for name in imported(path) - {"urllib.parse"}}


@pytest.mark.parametrize("package", OURS)
def test_packages_import_only_what_lies_below_them(package: str):
    found = modules(package)
    assert found, f"{package} has no modules"
    for path in found:
        foreign = (tops(path) & set(OURS)) - MAY_IMPORT[package]
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


def test_the_core_knows_no_disk_no_network_no_thread_no_clock_and_no_global_randomness():
    for path in modules("convergence_core"):
        names = {name for name in imported(path) if name not in PURE}
        foreign = {name.split(".")[0] for name in names} & CORE_MAY_NOT_IMPORT
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) not in CLOCKS, f"{path}: reads the clock"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in {"open", "print", "input"}, f"{path}: touches the world"
            if isinstance(node, ast.ImportFrom) and node.module == "pathlib":
                names = {alias.name for alias in node.names}
                assert names <= PURE_PATHS, f"{path.relative_to(ROOT)} imports {sorted(names)}"


def test_clients_in_tasks_do_not_import_prefect():
    for path in modules("tasks"):
        if path.name not in TASKS_WITH_PREFECT and path.parts[-2] != "prefect_support":
            assert "prefect" not in tops(path), f"{path.relative_to(ROOT)} imports Prefect"


def test_importing_the_front_door_or_the_core_loads_nothing_heavy_and_prints_nothing():
    code = (
        "import sys, convergence, convergence_core;"
        "heavy = {'prefect', 'numpy', 'scipy', 'polars', 'duckdb', 'openai', 'matplotlib', 'torch'};"
        "found = sorted(heavy & set(sys.modules));"
        "sys.exit(', '.join(found) if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_every_core_module_leaves_prefect_out():
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in modules("convergence_core")
        if path.name != "__init__.py"
    ]
    code = f"import sys\nfor n in {names!r}: __import__(n)\nsys.exit('prefect' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("package", OURS)
def test_every_public_list_is_sorted_and_names_what_exists(package: str):
    for path in modules(package):
        for node in parsed(path).body:
            if isinstance(node, ast.Assign) and any(
                isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
            ):
                names = ast.literal_eval(node.value)
                # Constants, then classes, then functions, as the linter sorts them.
                ordered = sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
                assert list(names) == ordered, f"{path.relative_to(ROOT)}: sort __all__"
