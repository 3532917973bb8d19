"""Names that have moved are found under their old names, with a warning that says where they are."""

import subprocess
import sys

import pytest

from convergence.compat import OLD_NAMES


def test_these_are_the_old_names():
    assert OLD_NAMES == {
        "convergence.caller_storage": "convergence.runtime.custom_storage",
        "convergence.live_arms": "convergence.runtime.functions",
        "convergence.mock": "tasks.mock",
        "convergence.mock.options": "tasks.mock.options",
        "convergence.mock.running": "tasks.mock.mock_server",
        "convergence_core.store": "tasks.store",
        "convergence_core.store.protocols": "convergence_core.ports",
        "convergence_core.target": "convergence_core.ports",
    }


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
def test_an_old_name_gives_the_module_and_a_warning(old: str, new: str):
    code = (
        "import importlib, sys, warnings\n"
        "import convergence\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        f"    found = importlib.import_module({old!r})\n"
        f"assert found is importlib.import_module({new!r})\n"
        f"assert any({new!r} in str(w.message) for w in caught), caught\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
