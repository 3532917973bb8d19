"""What `pip install` brings: five packages, the data they need, and nothing else."""

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_the_wheel_holds_the_five_packages_and_nothing_else(names: list[str]):
    tops = {name.split("/")[0] for name in names}
    metadata = {top for top in tops if top.endswith(".dist-info")}
    assert len(metadata) == 1
    assert tops - metadata == {"convergence", "convergence_core", "deployments", "flows", "tasks"}


def test_the_wheel_carries_the_data_that_commands_need(names: list[str]):
    for wanted in (
        "convergence/_data/quickstart/optimization.yaml",
        "convergence/_data/quickstart/cases.jsonl",
        "convergence/_data/quickstart/retriever.py",
        "convergence/_data/quickstart/corpus.py",
        "convergence/_data/quickstart/metrics.py",
        "convergence/_data/prices/prices.yaml",
        "convergence/_data/personas/factors.yaml",
        "convergence/_data/recorded-exam/optimization.yaml",
        "convergence/_data/recorded-exam/answers.jsonl",
        "convergence/_data/recorded-exam/cases.jsonl",
        "convergence/_data/recorded-exam/replay.py",
        "convergence/_data/recorded-exam/LICENSE",
        "convergence/_data/recorded-exam/NOTICE",
        "convergence/templates/function/optimization.yaml",
    ):
        assert wanted in names, f"{wanted} is not in the wheel"


def test_the_wheel_carries_no_caches_and_no_results(names: list[str]):
    bad = [n for n in names if "__pycache__" in n or "convergence-data" in n or "/results/" in n]
    assert not bad
