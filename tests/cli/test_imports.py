"""What loads when: quick and silent imports, and no Prefect where nothing is optimized."""

from pathlib import Path

import pytest

from tests.support.commands import Runner

HEAVY = ("prefect", "numpy", "pydantic", "polars", "duckdb", "openai", "httpx", "scipy", "yaml")

LOADED = """
import sys
{code}
heavy = [name for name in {heavy!r} if name in sys.modules]
print("loaded:", *heavy)
"""

RUN = """
import sys
from convergence.__main__ import run
for command in sys.argv[1:]:
    run(command.split())
    print(f"prefect after {command}:", "prefect" in sys.modules, file=sys.stderr)
"""


def test_help_loads_nothing_heavy(python: Runner):
    code = "from convergence.__main__ import run\nassert run(['--help']) == 0"
    done = python(LOADED.format(code=code, heavy=HEAVY))
    assert done.out.strip().endswith("loaded:"), done.out


def test_public_names_are_sorted_complete_and_resolve(python: Runner):
    done = python(
        "import convergence\n"
        "assert convergence.__all__ == sorted(convergence.__all__)\n"
        "assert set(convergence.__all__) <= set(dir(convergence))\n"
        "for name in convergence.__all__:\n"
        "    assert getattr(convergence, name)\n"
        "import convergence.types as types\n"
        "assert types.__all__ == sorted(types.__all__)\n"
        "for name in types.__all__:\n"
        "    assert getattr(types, name)\n"
    )
    assert done.code == 0, done.err


def test_unknown_name_is_an_attribute_error():
    import convergence

    with pytest.raises(AttributeError, match="run_optimisation"):
        convergence.run_optimisation  # noqa: B018


def test_commands_that_do_not_optimize_never_import_prefect(tmp_path: Path, python: Runner):
    commands = ["init .", "version", "schema", "validate", "runs", "report", "--help"]
    done = python(RUN, *commands, cwd=tmp_path)
    assert done.code == 0, done.err
    loaded = [line for line in done.err.splitlines() if line.startswith("prefect after ")]
    assert loaded == [f"prefect after {command}: False" for command in commands]
