"""The guard against packages of the same name."""

from pathlib import Path

import pytest

from convergence_core.errors import ForeignPackageError
from convergence_core.packages import MARKER, check_packages

OURS = ("convergence", "convergence_core", "flows", "tasks")


def make_package(folder: Path, name: str, text: str = f"{MARKER}\n") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").write_text(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_our_packages_pass():
    check_packages(OURS)


def test_each_of_our_packages_bears_the_marker_line():
    root = Path(__file__).parents[2]
    for name in OURS:
        assert MARKER in (root / name / "__init__.py").read_text().splitlines()


def test_package_without_the_marker_is_foreign(folder: Path):
    make_package(folder, "guard_foreign", "x = 1\n")
    with pytest.raises(ForeignPackageError, match="belongs to another distribution"):
        check_packages(["guard_foreign"])


def test_module_in_place_of_a_package_is_foreign(folder: Path):
    (folder / "guard_module.py").write_text(f"{MARKER}\n")
    with pytest.raises(ForeignPackageError, match="must be a package"):
        check_packages(["guard_module"])


def test_missing_package_is_an_error():
    with pytest.raises(ForeignPackageError, match="is missing"):
        check_packages(["guard_nowhere"])


def test_package_in_another_folder_is_foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    make_package(tmp_path / "one", "guard_here")
    make_package(tmp_path / "two", "guard_there")
    monkeypatch.syspath_prepend(str(tmp_path / "one"))
    monkeypatch.syspath_prepend(str(tmp_path / "two"))
    with pytest.raises(ForeignPackageError, match="must lie next to the others"):
        check_packages(["guard_here", "guard_there"])
