"""Finding functions of the user's."""

import os
import re
import sys

import pytest

from convergence_core.errors import ConfigurationError
from tasks.functions.user_functions import is_async, load_function
from tasks.inputs.factories import make_target
from tests.support.configurations import loaded


def test_a_file_is_found_relative_to_the_configuration(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "f.py").write_text("from near import N\ndef f(): return N\n")
    (tmp_path / "sub" / "near.py").write_text("N = 1\n")
    assert load_function("sub/f.py:f", tmp_path, key="k")() == 1


def test_siblings_of_one_name_in_two_folders_are_kept_apart(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.py").write_text("from same_name import N\ndef f(): return N\n")
        (tmp_path / name / "same_name.py").write_text(f"N = {name!r}\n")
    assert load_function("f.py:f", tmp_path / "one", key="k")() == "one"
    assert load_function("f.py:f", tmp_path / "two", key="k")() == "two"


def test_a_file_is_imported_once_and_again_when_it_changed(tmp_path, monkeypatch):
    """Also within the second, and with as many letters, that compiled modules are told apart by."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "f.py"
    file.write_text("def f(): return 1\n")
    os.utime(file, (10**9, 10**9))
    first = load_function("f.py:f", tmp_path, key="k")
    assert load_function("f.py:f", tmp_path, key="k") is first
    file.write_text("def f(): return 2\n")
    os.utime(file, (10**9, 10**9))
    assert load_function("f.py:f", tmp_path, key="k")() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["f.py"]


def test_a_module_that_fails_leaves_nothing_behind(tmp_path):
    (tmp_path / "f.py").write_text("import sys\nsys.exit('no')\n")
    before = set(sys.modules)
    path_before = list(sys.path)
    with pytest.raises(ConfigurationError, match="SystemExit"):
        load_function("f.py:f", tmp_path, key="k")
    assert not {name for name in set(sys.modules) - before if name.startswith("convergence_user")}
    assert [entry for entry in sys.path if entry != str(tmp_path)] == path_before


def test_a_module_missing_inside_of_the_users_is_told_with_its_line(tmp_path):
    (tmp_path / "f.py").write_text("x = 1\nimport no_such_module_at_all\n")
    with pytest.raises(ConfigurationError) as caught:
        load_function("f.py:f", tmp_path, key="api.function")
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (str(tmp_path / "f.py"), 2)


@pytest.mark.parametrize(
    "code",
    [
        "import praw.models",
        "try:\n    import praw\nexcept ImportError:\n    raise ImportError('install praw')",
    ],
)
def test_a_package_of_an_extra_that_is_missing_is_named_with_its_command(
    tmp_path, monkeypatch, code
):
    monkeypatch.setitem(sys.modules, "praw", None)
    (tmp_path / "f.py").write_text(code + "\n")
    with pytest.raises(ConfigurationError) as caught:
        load_function("f.py:f", tmp_path, key="api.function")
    (problem,) = caught.value.problems
    assert problem.rule == "needs the package praw, which is not installed"
    assert re.fullmatch(r"Run pip install -e '.+\[agno\]'\.", problem.fix)


def test_async_functions_are_recognized_through_wrappers():
    import functools

    async def f(x):
        return x

    class Callable:
        async def __call__(self, x):
            return x

    assert is_async(f)
    assert is_async(functools.partial(f, 1))
    assert is_async(Callable())
    assert not is_async(len)


def test_a_run_begun_with_a_callable_says_that_it_needs_it():
    api = {"name": "s", "kind": "function"}
    made = loaded(api=api)
    with pytest.raises(ConfigurationError, match="local_function"):
        make_target(made)
    assert make_target(made, local_function=lambda case_input, params: 1).provider == "function"
