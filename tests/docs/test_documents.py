"""Documents are executed: snippets run, generated pages are current, links lead somewhere."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from docs.build import PAGES

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "data").rglob("*.md")),
    *sorted((ROOT / "benchmarks").rglob("README.md")),
    ROOT / "benchmarks/optimizer/data/NOTICE.md",
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_STEPS = (ROOT / "docs/first-steps.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def in_shell(script: str, folder: Path) -> str:
    """Run a block as a user would, with this environment's commands on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.parametrize("name", sorted(PAGES))
def test_generated_pages_are_current(name: str):
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == PAGES[name](), (
        "run `python -m docs.build`"
    )


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_and_pictures_lead_somewhere(path: Path):
    for target in re.findall(r"\]\(([^)#\s]+)", path.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (path.parent / target).exists(), f"{target} does not exist"


def test_commands_for_a_server_say_which():
    """Else Prefect starts one that ends with the command, and the page stays empty."""
    found = [
        block
        for path in DOCUMENTS
        for block in blocks(path.read_text(encoding="utf-8"), "sh")
        if re.search(r"^prefect (?!server start$)", block, re.MULTILINE)
    ]
    assert len(found) >= 3
    assert [b for b in found if not b.startswith("export PREFECT_API_URL=http")] == []


REST = {
    "api": "{name: mood, function: mood.py:answer}",
    "search_space": "{parameters: {temperature: {type: float, min: 0, max: 1}}}",
    "evaluation": (
        "{test_cases: [{input: {question: a}, expected: b}], metrics: {exact_match: {weight: 1}}}"
    ),
}
"""What ``init`` writes of the sections that a part leaves out."""


def test_every_configuration_in_the_documents_is_accepted():
    """Whole ones and parts: each block whose keys are sections of a configuration."""
    from convergence_core.config import Configuration, parse_configuration

    n_read = 0
    for path in DOCUMENTS:
        for block in blocks(path.read_text(encoding="utf-8"), "yaml"):
            sections = yaml.safe_load(block)
            if not isinstance(sections, dict) or not sections.keys() <= set(
                Configuration.model_fields
            ):
                continue
            if sections.keys() == {"prices"}:  # entries for targets of several kinds
                continue
            rest = {name: text for name, text in REST.items() if name not in sections}
            text = block + "".join(f"{name}: {value}\n" for name, value in rest.items())
            if "test_cases" not in sections.get("evaluation", {"test_cases": None}):
                text = text.replace("evaluation:\n", "evaluation:\n  test_cases: {path: c.json}\n")
            parse_configuration(text, file=str(path))
            n_read += 1
    assert n_read >= 8


@pytest.mark.prefect
@pytest.mark.slow
def test_the_function_of_the_first_steps_runs_as_printed(tmp_path: Path):
    (block,) = blocks(FIRST_STEPS, "sh")
    printed = in_shell(block, tmp_path)
    assert (tmp_path / "my-function/results/latest").exists()
    assert "\nNext: " in printed


def test_the_configuration_of_the_first_steps_is_the_one_that_init_writes(tmp_path: Path):
    from convergence_core.config import parse_configuration

    (block,) = [b for b in blocks(FIRST_STEPS, "yaml") if "help_desk" in b]
    written = (ROOT / "convergence/templates/function/optimization.yaml").read_text("utf-8")
    assert parse_configuration(block, file=None) == parse_configuration(written, file=None)


@pytest.mark.prefect
@pytest.mark.slow
def test_the_python_example_of_the_first_steps_runs_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    (block,) = blocks(FIRST_STEPS, "python")
    (tmp_path / "example.py").write_text(block)
    printed = in_shell("python example.py", tmp_path)
    assert printed.startswith("{'slope':")


@pytest.mark.prefect
@pytest.mark.slow
def test_the_readme_leads_from_a_prompt_to_a_request_in_production(tmp_path: Path):
    environment = f"{Path(sys.executable).parent}/activate"
    begin, look, promote = blocks(README, "sh")[2:5]
    # One more command clones, and one installs.
    n_to_answers, n_to_winner = (
        2 + sum(len(block.splitlines()) for block in walk)
        for walk in ((". .venv/bin/activate", "convergence demo"), (begin, look, promote))
    )
    assert "`convergence demo`" in README
    assert n_to_answers <= 4
    assert n_to_winner <= 10
    printed = in_shell(begin.replace(".venv/bin/activate", environment), tmp_path)
    assert "Better than the defaults" in printed
    assert look == "convergence ui\n"
    folder = tmp_path / "my-prompt"
    in_shell(promote, folder)
    (folder / "service.py").write_text(blocks(README, "python")[0], encoding="utf-8")
    # The control gets a tenth of the requests: all of six with a probability of 1e-6.
    selected = in_shell("for i in 1 2 3 4 5 6; do python service.py; done", folder)
    assert "angry, happy, neutral or sad" in selected


@pytest.mark.slow
@pytest.mark.prefect
@pytest.mark.timeout(600)
def test_one_command_without_a_key_leads_to_answers_side_by_side(tmp_path: Path):
    printed = in_shell("convergence demo", tmp_path)
    assert "Better than the defaults" in printed
    following = printed.splitlines()[-1].partition(": ")[2]
    assert following == "cd prompt-demo && convergence ui"
    shown = in_shell("convergence show", tmp_path / "prompt-demo")
    assert "answers, worst cases first" in shown
    again = in_shell("convergence demo 2>&1 || true", tmp_path)
    assert "must not exist yet" in again


@pytest.mark.prefect
def test_every_question_in_the_documents_gets_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from convergence.__main__ import run
    from convergence_core.feedback.records import Rating
    from tasks.serving.fold import fold_store
    from tasks.serving.offers import offer_of
    from tasks.store.feedback.feedback_store import FeedbackStore
    from tasks.store.runtime.runtime_store import RuntimeStore
    from tasks.store.tables.parquet_store import ParquetStore
    from tests.feedback.answers import answer
    from tests.support.bandits import Bandit
    from tests.support.optimizations import write_project

    write_project(tmp_path, optimization__evolution__generations=2)
    monkeypatch.chdir(tmp_path)
    assert run(["optimize", "--quiet"]) == 0
    with RuntimeStore(tmp_path / "convergence-data") as state:
        state.offer("known", "default", [offer_of({}, "a"), offer_of({}, "b")], trust=0.5)
        bandit = Bandit(state, "known", seed=1)
        bandit.update(bandit.select("u").decision_id, 1.0)
    with FeedbackStore(tmp_path / "convergence-data") as feedback:
        feedback.log(answer())
        feedback.rate(Rating(interaction_id="a", user_id="ann", rating=4))
    fold_store(tmp_path / "convergence-data")
    store = ParquetStore(tmp_path / "convergence-data")
    questions = [
        question
        for path in DOCUMENTS
        for block in blocks(path.read_text(encoding="utf-8"), "sql")
        for question in block.split(";\n")
        if question.strip()
    ]
    assert len(questions) >= 10
    empty = [question for question in questions if not store.rows(question)]
    # The only question whose good answer is empty is the one about failures.
    assert all("status <> 'ok'" in question for question in empty), empty


@pytest.mark.prefect
def test_the_command_page_names_every_command_and_nothing_else():
    listed = set(
        re.findall(r"^\| `convergence ([a-z]+)", (ROOT / "docs/commands.md").read_text(), re.M)
    )
    printed = in_shell("convergence --help --all", ROOT)
    known = set(re.findall(r"^│ ([a-z]+)  ", printed, re.MULTILINE))
    assert listed == known


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_first_command_of_the_readme_runs_on_a_fresh_clone(tmp_path: Path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    command = blocks(README, "sh")[0]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")
    }
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=clone,
        # Modules are compiled when they are imported; most of what is installed never is.
        env={**environment, "PREFECT_HOME": str(tmp_path / "home"), "PIP_NO_COMPILE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (clone / "results/latest/report.html").exists()
    shutil.rmtree(clone)


def test_the_test_command_of_the_readme_is_the_one_that_make_and_ci_run():
    (command,) = [b for b in blocks(README, "sh") if "pytest" in b]
    selection = re.search(r'pytest (-m ".*?")', command)
    assert selection is not None
    assert f"pytest {selection[1]}" in (ROOT / "Makefile").read_text()
    assert "make test" in (ROOT / ".ci/run").read_text()


def test_documents_name_no_machine_and_no_package_index():
    bad = re.compile(r"/(work|root|home)/|pypi\.org|files\.pythonhosted|registry\.npmjs", re.I)
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if name == "tests/docs/test_documents.py" or path.suffix in {".png", ".svg"}:
            continue
        if path.is_file():
            found = bad.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name}: {found}"


def test_the_runtime_example_runs_as_printed(tmp_path: Path):
    text = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    serving, _, _ = blocks(text, "python")
    (tmp_path / "serve.py").write_text(serving, encoding="utf-8")
    printed = in_shell(
        "PYTHONPATH=$CHECKOUT python serve.py".replace("$CHECKOUT", str(ROOT)), tmp_path
    )
    first, last = printed.splitlines()
    assert first.split()[0] in {"small", "large"}
    assert last.split()[1] == "None", "one reward is no verdict"
    assert (tmp_path / "convergence-data/runtime.sqlite").is_file()


def test_the_off_policy_commands_run_as_printed(tmp_path: Path):
    """On a store and a log like those they speak of."""
    import numpy as np
    import polars as pl

    from tasks.serving.offers import offer_of
    from tasks.serving.settings import RuntimeConfig
    from tasks.store.runtime.runtime_store import RuntimeStore
    from tests.support.bandits import Bandit

    rng = np.random.default_rng(0)
    with RuntimeStore(tmp_path / "convergence-data") as store:
        store.offer(
            "support_bot", "default", [offer_of({}, a) for a in ("small", "large")], trust=0.5
        )
        bandit = Bandit(
            store, "support_bot", settings=RuntimeConfig(system="bot", floor=0.6), seed=2
        )
        clicks = []
        for _ in range(300):
            chosen = bandit.select("u")
            reward = float(rng.random() < 0.5)
            bandit.update(chosen.decision_id, reward)
            clicks.append((chosen.arm_id, reward, chosen.propensity))
    log = pl.DataFrame(clicks, schema=["action", "click", "propensity"], orient="row")
    log.write_parquet(tmp_path / "log.parquet")
    text = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(text, "sh") if "convergence ope" in block]
    printed = in_shell("export PYTHONPATH=" + str(ROOT) + "\n" + block, tmp_path)
    assert printed.count("This policy would have earned") == 2


@pytest.mark.slow
def test_the_commands_of_live_arms_run_as_printed(tmp_path: Path):
    from tasks.serving.offers import offer_of
    from tasks.store.runtime.runtime_store import RuntimeStore

    with RuntimeStore(tmp_path / "convergence-data") as store:
        store.offer("support_bot", "default", [offer_of({"m": 1}, "small")], trust=0.5)
    text = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(text, "sh") if "arms add" in block]
    printed = in_shell("export PYTHONPATH=" + str(ROOT) + " COLUMNS=200\n" + block, tmp_path)
    assert "tiny" in printed
    assert "0.800 as 20 rewards" in printed


def test_the_automation_in_the_documents_is_one_that_prefect_knows():
    import yaml
    from prefect.automations import Automation

    text = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    (block,) = [block for block in blocks(text, "yaml") if "convergence.drift" in block]
    automation = Automation.model_validate(yaml.safe_load(block))
    assert automation.trigger.expect == {"convergence.drift"}  # type: ignore[union-attr]


def test_the_service_and_its_client_run_as_printed(tmp_path: Path):
    """The commands as they are, on a free port; the client's example asks that service."""
    from tasks.serving.offers import offer_of
    from tasks.store.runtime.runtime_store import RuntimeStore

    with RuntimeStore(tmp_path / "convergence-data") as store:
        arms = [offer_of({"m": name}, name) for name in ("small", "large")]
        store.offer("support_bot", "default", arms, trust=0.5)
    text = (ROOT / "docs/runtime.md").read_text(encoding="utf-8")
    (commands,) = [block for block in blocks(text, "sh") if "convergence serve" in block]
    (example,) = [block for block in blocks(text, "python") if "Client(" in block]
    script = (
        f"export PYTHONPATH={ROOT} COLUMNS=400\nmkfifo told\n"
        f"{commands.rstrip()} --port 0 > told &\nserver=$!\n"
        "exec 3< told; read -r line <&3; url=${line##* }\n"
        'sed "s#http://127.0.0.1:8700#$url#" client.py > asked.py\n'
        "python asked.py; code=$?\nkill -TERM $server; wait $server && exit $code\n"
    )
    (tmp_path / "client.py").write_text(example + "print(chosen.arm_id)\n", encoding="utf-8")
    assert in_shell(script, tmp_path).strip() in {"small", "large"}
    with RuntimeStore(tmp_path / "convergence-data") as store:
        group = store.group("support_bot", "default")
    assert group is not None
    assert group.n == 1
