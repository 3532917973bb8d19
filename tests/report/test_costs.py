"""What a report says of money."""

from dataclasses import replace

from convergence_core.result import RoleCost, RunResult
from tasks.report.markdown import report_markdown
from tests.support.results import made_up_result

TARGET = RoleCost(
    purpose="evaluation", provider="openai", model="small", n_calls=120, n_failed=3, n_reused=7,
    n_from_other_runs=40, prompt_tokens=9000, cached_tokens=1000, completion_tokens=800,
    reasoning_tokens=None, cost_usd=0.25, n_unpriced=0, maybe_usd=0.01,
)  # fmt: skip
JUDGE = replace(TARGET, purpose="judge", model="home-made", cost_usd=None, n_unpriced=4)


def told(*costs: RoleCost, **changes: object) -> str:
    result: RunResult = replace(made_up_result(), costs=costs, **changes)  # type: ignore[arg-type]
    return report_markdown(result)


def test_each_role_has_its_row_and_unknown_is_not_zero():
    text = told(TARGET, JUDGE)
    assert "## Cost" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| evaluation | `small`")]
    assert "$0.25" in row
    assert "9,000" in row
    (judge,) = [line for line in text.splitlines() if line.startswith("| judge | `home-made`")]
    assert "4 calls of unknown price" in judge
    assert "$0.00" not in judge
    assert "$4.22 and 4 calls of unknown price" in text
    function = replace(TARGET, provider="function", n_unpriced=2)
    assert "$4.22 and 2 calls of unknown price" in told(function)


def test_an_offline_run_says_that_nobody_was_paid():
    assert "nothing was paid" in told(TARGET, facts={"offline": "true"})
