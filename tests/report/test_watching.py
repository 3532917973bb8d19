"""What those who watch a run are shown: spend against limits, and which configuration got how many evaluations."""

from dataclasses import replace

from convergence_core.budget.limits import Spent
from convergence_core.config.models import BudgetConfig
from tasks.report.markdown import markdown_of
from tasks.report.tables import spending
from tests.report.test_costs import TARGET
from tests.support.results import made_up_result


def test_each_limit_stands_beside_what_is_spent_of_it():
    result = made_up_result()
    limits = BudgetConfig(max_usd=2.0, max_calls=400, max_minutes=10)
    spent = Spent(usd=0.5, calls=100, tokens=12_345, seconds=90)
    text = markdown_of(spending(result, limits, spent))
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[2:6] == [
        "| money | $0.50 | `budget.max_usd=2` | 25 % |",
        "| calls | 100 calls | `budget.max_calls=400` | 25 % |",
        "| tokens | 12,345 tokens | none |  |",
        "| minutes | 1.5 minutes | `budget.max_minutes=10` | 15 % |",
    ]
    assert "unknown" not in text


def test_unknown_prices_are_told_and_roles_have_their_rows():
    result = replace(made_up_result(), costs=(TARGET,))
    text = markdown_of(spending(result, BudgetConfig(), Spent(usd=0.5, n_unpriced=2)))
    assert "The price of 2 calls is unknown: the worst case counts." in text
    assert "| evaluation |" in text
