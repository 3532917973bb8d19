"""Rarer collections of garbage, in processes of our own and for a while in those of others."""

import gc
import sys

import pytest

from tasks.prefect_support.program import RARELY, collecting_rarely
from tests.support.children import run_python


@pytest.fixture(autouse=True)
def _as_before():
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_a_block_collects_rarely_and_leaves_what_it_found():
    gc.set_threshold(701, 11, 12)
    with collecting_rarely():
        assert gc.get_threshold() == (RARELY, 11, 12)
    assert gc.get_threshold() == (701, 11, 12)


def test_a_program_finds_its_arguments_and_rare_collections(tmp_path):
    (tmp_path / "shown.py").write_text(
        "import gc, sys\n"
        "if __name__ == '__main__':\n"
        "    print(gc.get_threshold()[0], sys.argv[1:])\n"
    )
    path = f"{tmp_path}:{':'.join(sys.path)}"
    done = run_python("-m", "tasks.prefect_support.program", "shown", "a", "--b", PYTHONPATH=path)
    assert done.stdout == f"{RARELY} ['a', '--b']\n"
