"""The page on preferences: its commands run as printed, its names are the product's."""

import os
import re
from pathlib import Path

from typer.testing import CliRunner

from convergence.cli.app import app
from convergence_core.sao.filters import FILTERS
from tasks.mock.mock_server import MockServer
from tasks.mock.options import MockOptions
from tasks.store.tables.parquet_store import ParquetStore
from tests.support.planted_server import planted_server
from tests.support.preferring_runs import learner_of, planted_world, write_preferring
from tests.support.stepped_runs import STORE, begin, play_generation

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/preferences.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_configuration_begins_a_run_that_prefers(tmp_path: Path):
    (block,) = blocks("yaml")
    (tmp_path / "optimization.yaml").write_text(block, encoding="utf-8")
    with MockServer(MockOptions()) as server:
        run = begin(tmp_path, mock_url=server.url)
        with run:
            assert learner_of(run).calls.disabled_reason is None


def test_every_filter_is_named():
    for name in FILTERS:
        assert f"`{name}`" in PAGE, name


def test_the_commands_and_questions_run_as_printed(tmp_path: Path):
    sao = {"every": 1, "n_samples": 6, "audit_items": 6}
    size = {"population_size": 4, "generations": 2}
    with planted_server(planted_world(spread=2.0)) as server:
        write_preferring(tmp_path, server.url, society__sao=sao, optimization__evolution=size)
        run = begin(tmp_path)
        with run:
            while run.should_continue():
                play_generation(run)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 2
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        for command in commands:
            done = CliRunner().invoke(app, command.split()[1:])
            assert done.exit_code == 0, f"{command}\n{done.output}\n{done.exception}"
    finally:
        os.chdir(before)
    store = ParquetStore(tmp_path / STORE)
    for question in (q for block in blocks("sql") for q in block.split(";") if q.strip()):
        assert store.rows(question)
