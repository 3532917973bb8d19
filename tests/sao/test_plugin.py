"""SAO without a run: over the real client and a real server, outside of Prefect."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.plugins.learning.sao import SAOConfig, SAOMixin
from convergence_core.config.spending import LlmConfig
from convergence_core.sao.formats import Row, row_of
from tasks.preferences.dataset import read_dataset
from tasks.providers import make_llm
from tasks.redaction import Secrets
from tests.support.planted_server import PlantedWorld, planted_server
from tests.support.preferring_runs import case_truth

ITEMS = [
    (f"Case {n}: what is the code?", f"The code is {7 * n}.", "I do not know that code.")
    for n in range(20)
]


def write(world: PlantedWorld, n_calls: int = 1, n_samples: int = 8, **settings):
    """Return the mixin after some calls, and what each has brought."""

    async def go(url: str):
        llm = make_llm(LlmConfig(model="m", endpoint=url, timeout_seconds=5), Secrets())
        try:
            sao = SAOMixin(
                llm,
                SAOConfig(model_name="m", **settings),
                task="Answers questions of citizens.",
                grounded=ITEMS,
            )
            found = [await sao.generate_synthetic_dataset(n_samples) for _ in range(n_calls)]
        finally:
            await llm.aclose()
        return sao, found

    with planted_server(world) as server:
        return asyncio.run(go(server.url))


def test_a_call_writes_answers_judges_and_tries_the_judge(tmp_path: Path):
    world = PlantedWorld(truth=case_truth, spread=2.0)
    # The double answers test cases as its `truth` says; here nobody asks it any.
    sao, (found,) = write(world)
    assert world.n_asked["prompt"] == 8
    assert len(found.pairs) + sum(found.dropped.values()) >= 8
    assert found.kept
    assert found.audit is not None
    assert found.audit.accuracy == 1.0
    assert sao.trust.is_enabled
    assert found.why_ended is None
    with pytest.raises(ValueError, match="coverage is insufficient"):
        sao.export_dataset(tmp_path / "rows.jsonl")
    files = sao.export_dataset(tmp_path / "rows.jsonl", anyway=True)
    rows = [Row.from_json(json.loads(line)) for line in files["rows"].read_text().splitlines()]
    train = [p for p in found.kept if p.split == "train"]
    assert rows == [row_of(p) for p in train]
    assert [p.judgement for p in read_dataset(files["rows"]).pairs] == [p.judgement for p in train]


def test_rounds_end_and_then_nothing_more_is_written():
    world = PlantedWorld(truth=case_truth)
    sao, found = write(world, 3, n_samples=4, iterative_rounds=2)
    assert found[1].why_ended == "all 2 rounds were run"
    assert found[2].pairs == ()
    assert world.n_asked["prompt"] == 8
    assert len({p.comparison.persona for p in sao.pairs}) == len(sao.pairs)


def test_all_pairs_of_three_answers_are_judged():
    _, (found,) = write(PlantedWorld(truth=case_truth), n_samples=3, response_pairs=3)
    assert len(found.pairs) == 9
    assert len({p.comparison.prompt for p in found.pairs}) == 3


@pytest.mark.parametrize("mode", ["garbage", "http500"])
def test_a_broken_model_brings_errors_and_no_pair(mode, tmp_path: Path):
    sao, (found,) = write(PlantedWorld(mode=mode, truth=case_truth), n_samples=4)
    assert found.pairs == ()
    assert sum(found.errors.values()) == 4
    with pytest.raises(ValueError, match="no kept pair"):
        sao.export_dataset(tmp_path / "rows.jsonl", anyway=True)


def test_a_model_without_any_channel_says_so():
    world = PlantedWorld(channel="verdict", truth=case_truth)
    _, (found,) = write(world, use_logprobs=True, n_samples=2)
    assert found.why_ended is not None
    assert "no probability channel" in found.why_ended
    assert world.n_asked["prompt"] == 0


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"response_pairs": 1}, "response_pairs"),
        ({"diversity_factor": 1.5}, "diversity_factor"),
        ({"iterative_rounds": 0}, "iterative_rounds"),
    ],
)
def test_settings_out_of_range_are_refused(settings, says: str):
    with pytest.raises(ValueError, match=says):
        SAOConfig(**settings)


def test_it_works_outside_of_prefect():
    code = (
        "import sys, convergence.plugins.learning.sao;"
        "sys.exit('prefect' in sys.modules or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
