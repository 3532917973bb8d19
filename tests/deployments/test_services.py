"""What ships for containers, Kubernetes and systemd is read, rendered and checked by linters.

No container is built and no cluster is asked here: neither is at hand where these tests run.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tasks.prefect_support.settings import SERVER_PROFILE
from tests.support.http_server import LoopbackServer, error_answer

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deployments/docker"
TEMPLATE = ROOT / "deployments/kubernetes/base-job-template.json"
UNITS = sorted((ROOT / "deployments/systemd").glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, continued lines joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines if line)]


def copied() -> list[str]:
    """Return what the Dockerfile takes from the checkout."""
    found = [rest.split() for word, rest in instructions() if word == "COPY"]
    taken = [parts for parts in found if not parts[0].startswith("--from")]
    return [name for parts in taken for name in parts[:-1] if not name.startswith("--")]


def test_the_image_is_slim_locked_watched_and_not_roots():
    words = [word for word, _ in instructions()]
    last_stage = instructions()[len(words) - words[::-1].index("FROM") - 1 :]
    assert all("slim" in rest for word, rest in instructions() if word == "FROM")
    assert any("pip install -c constraints.txt" in rest for _, rest in instructions())
    assert [rest for word, rest in last_stage if word == "USER"] == ["10001:10001"]
    assert any(word == "HEALTHCHECK" for word, _ in last_stage)
    assert not any(re.search(r"(?i)(token|password|secret|_key)=", rest) for _, rest in last_stage)


def test_the_build_is_given_all_that_it_copies_and_little_else():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text().splitlines()
    allowed = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert ignored[0] == "*"
    assert allowed == set(copied())
    assert all((ROOT / name).exists() for name in allowed)


@pytest.mark.slow
def test_what_is_copied_is_enough_to_build_the_package(tmp_path: Path):
    from hatchling.builders.wheel import WheelBuilder

    for name in copied():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tmp_path / name)
    (wheel,) = WheelBuilder(str(tmp_path)).build(directory=str(tmp_path / "dist"))
    assert wheel.endswith(".whl")


@pytest.mark.parametrize(("status", "code"), [(200, 0), (401, 0), (500, 1), (503, 1)])
def test_a_container_is_healthy_if_its_address_answers(
    status: int, code: int, monkeypatch: pytest.MonkeyPatch
):
    healthcheck = _module(DOCKER / "healthcheck.py")
    with LoopbackServer(lambda _: error_answer(status)) as server:
        monkeypatch.setenv("HEALTH_URL", f"{server.url}/health")
        assert healthcheck.main() == code
    assert healthcheck.main() == 1, "nobody listens any more"
    monkeypatch.delenv("HEALTH_URL")
    assert healthcheck.main() == 0


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_service_of_compose_is_watched_and_none_runs_with_privileges():
    services = COMPOSE["services"]
    assert set(services) == {"postgres", "server", "deploy", "worker", "api"}
    ours = {name: one for name, one in services.items() if name != "postgres"}
    for name, one in ours.items():
        assert one["read_only"], name
        assert one["cap_drop"] == ["ALL"], name
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
        assert name == "deploy" or "HEALTH_URL" in one["environment"], name
    assert services["server"]["environment"].items() >= SERVER_PROFILE.items()
    text = (DOCKER / "compose.yaml").read_text()
    for name in re.findall(r"\b[A-Z_]*(?:PASSWORD|TOKEN): (.*)", text):
        assert name.startswith("${"), "secrets come from the environment"


@pytest.mark.parametrize(
    "name",
    [
        "deploy",
        "api",
        pytest.param("server", marks=pytest.mark.slow),
        pytest.param("worker", marks=pytest.mark.slow),
    ],
)
def test_the_commands_of_compose_exist(name: str):
    """Options are parsed by the commands themselves; nothing is started."""
    program, *arguments = COMPOSE["services"][name]["command"]
    if program == "convergence":
        import typer

        from convergence.cli.app import app

        group: Any = typer.main.get_command(app)
        command = group.commands[arguments[0]]
        with command.make_context(arguments[0], list(arguments[1:])) as context:
            assert context.params
        return
    before = (
        [program] if program == "tasks.prefect_support.program" else []
    )  # the image runs modules
    assert [*before, "prefect"] == [program, *arguments][: len(before) + 1]
    arguments = [program, *arguments][len(before) + 1 :]
    done = subprocess.run(
        [sys.executable, "-m", *before, "prefect", *arguments[:2], "--help"],
        capture_output=True, text=True, timeout=300, check=True,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )  # fmt: skip
    for option in (one for one in arguments if one.startswith("--")):
        assert option in done.stdout, option


def rendered(**values: Any) -> dict[str, Any]:
    """Return the job of the template as a worker fills it in."""
    from prefect.utilities.templating import apply_values

    template = json.loads(TEMPLATE.read_text())
    properties = template["variables"]["properties"]
    defaults = {n: p["default"] for n, p in properties.items() if p.get("default") is not None}
    found: dict[str, Any] = apply_values(template["job_configuration"], {**defaults, **values})
    return found


def test_every_variable_of_the_job_has_an_effect():
    template = json.loads(TEMPLATE.read_text())
    wanted = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert wanted == set(template["variables"]["properties"])
    assert {"working_dir", "env"} <= wanted, "what `convergence deploy` sets"


@pytest.mark.slow
def test_the_job_of_a_cluster_is_rendered_whole():
    from deployments.nightly.plan import JOB_ENVIRONMENT

    job = rendered(
        name="x", command="prefect flow-run execute", env=dict(JOB_ENVIRONMENT), labels={},
        annotations={}, working_dir="/project/here", image="registry/convergence:1",
    )  # fmt: skip
    pod = job["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert "{{" not in json.dumps(job["job_manifest"])
    assert container["image"] == "registry/convergence:1"
    assert container["workingDir"] == "/project/here"
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["restartPolicy"] == "Never", "the next night goes on, not the same pod"


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_systemd_takes_the_unit(path: Path, tmp_path: Path):
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("needs systemd-analyze")
    for unit in UNITS:
        text = unit.read_text()
        assert "User=convergence" in text
        # The programs of this environment stand in for those of /opt.
        text = re.sub(r"/opt/convergence/bin/\w+", sys.executable, text)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        [tool, "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_server_units_have_the_shipped_profile():
    (server,) = [path for path in UNITS if path.stem == "convergence-server"]
    text = server.read_text()
    assert all(f"{name}={value}" in text for name, value in SERVER_PROFILE.items())
