"""The TypeScript client: built from the service's document, and tested against a real service."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from convergence.policy import PolicyClient
from docs.openapi import document
from tests.support.children import ROOT

FOLDER = ROOT / "clients/typescript"
PAGE = (ROOT / "docs/policy.md").read_text(encoding="utf-8")
GIVEN = """declare function myScore(prompt: string): number;
"""
"""What the page's example takes for given."""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return a copy of the package with the packages that it needs."""
    if shutil.which("npm") is None or not (FOLDER / "node_modules").is_dir():
        pytest.skip("the packages of the client are missing: npm --prefix clients/typescript ci")
    copy = tmp_path / "clients" / "typescript"
    shutil.copytree(
        FOLDER, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "schema.ts")
    )
    (copy / "node_modules").symlink_to(FOLDER / "node_modules")
    return copy


def node(script: Path, folder: Path, *options: str, **environment: str) -> str:
    done = subprocess.run(
        ["node", str(script), *options], cwd=folder, capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def npm(folder: Path, script: str, **environment: str) -> None:
    done = subprocess.run(
        ["npm", "run", "--silent", script], cwd=folder, env={**os.environ, **environment},
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


CALLS = """import { type Transition, RLInterface, RLTrainer } from "./index.js";
const embedding = Array.from({ length: 1536 }, (_, at) => at + 1);
const prompt = "Answer the question of {user}.", prompts = [prompt, "Sum up: {text}"], maxSteps = 2;
const experience: Transition = { state: embedding, action: 2, reward: 0.4, nextState: embedding, done: false };

const rl = new RLInterface();
await rl.startServer();
await rl.selectAction(embedding); await rl.selectMutation(prompt);
await rl.storeExperience(experience); await rl.update();
await rl.trainEpisode(prompts, maxSteps);
await rl.saveCheckpoint(); await rl.saveCheckpoint("name"); const loaded: boolean = await rl.loadCheckpoint("name");
await rl.stopServer();

const trainer = new RLTrainer();
await trainer.start();
const stats = await trainer.train(prompts, 4, 5, 2);
console.log(loaded, stats.avgReward >= 0, stats.episodes.length); trainer.stop();
"""
"""The calls of users' documents."""


@pytest.mark.slow
def test_the_client_is_built_from_the_document_and_works_against_the_service(
    package: Path, tmp_path: Path
):
    (tmp_path / "build").mkdir()
    (tmp_path / "build/openapi.json").write_text(document(), encoding="utf-8")
    npm(package, "generate")
    (example,) = re.findall(r"^```ts\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert "convergence-client" in example
    given = example.replace("convergence-client", "./index.js")
    (package / "src/example.ts").write_text(GIVEN + given, encoding="utf-8")
    (package / "src/calls.ts").write_text(CALLS, encoding="utf-8")
    npm(package, "build")
    with PolicyClient() as client:
        url = client.start_server(tmp_path / "store", "--set", "batch_size=8")
        npm(package, "test", POLICY_URL=url, POLICY_TOKEN=client.token)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = (package / "dist/example.js").read_text(encoding="utf-8")
    (package / "dist/example.js").write_text(
        f"const myScore = (text) => Math.min(1, text.length / 400);\n{script}", encoding="utf-8"
    )
    for name in ("calls", "example"):
        (tmp_path / name).mkdir()
        printed = node(package / f"dist/{name}.js", tmp_path / name, PATH=path)
        assert printed.startswith("true 0." if name == "example" else "true true 4")
    simulated = node(package / "dist/demo.js", tmp_path)
    assert "no service" in simulated
    full = node(package / "dist/demo.js", tmp_path, "--full", PATH=path)
    assert full.count("mean reward") == 5
