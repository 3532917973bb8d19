"""Which plots a configuration wants, read without its models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from convergence_core.config import parse_mapping
from convergence_core.visualization import VISUALIZATIONS, visualizations_of
from tests.support.config_examples import MINIMAL, edited
from tests.support.results import bare_result

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("named", [None, [], ["spend"], ["spend", "tradeoffs"]])
def test_they_are_those_of_the_configuration(named: list[str] | None):
    tree = MINIMAL if named is None else edited({"output": {"visualizations": named}})
    configuration = parse_mapping(tree, allow_callable=True)
    found = visualizations_of(configuration.to_json())
    assert set(found) == set(configuration.output.visualizations)
    assert set(found) == set(VISUALIZATIONS if named is None else named)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"output": null}'])
def test_text_that_is_no_configuration_is_refused(text: str):
    with pytest.raises(ValueError, match=r"^(no configuration|Expecting value)"):
        visualizations_of(text)


def test_a_report_of_what_most_runs_have_loads_neither_numpy_nor_models():
    code = (
        "import sys; from convergence_core.result import RunResult; "
        "from tasks.report.markdown import report_markdown; "
        "report_markdown(RunResult.from_json(sys.stdin.read())); "
        "heavy = {'numpy', 'matplotlib', 'convergence_core.config'}; "
        "found = sorted(heavy & set(sys.modules)); sys.exit(', '.join(found) if found else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(bare_result().to_json()),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
