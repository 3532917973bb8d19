"""Write the generated pages: configuration keys, tables, rooms and their picture.

    python -m docs.build

A test holds the pages equal to what this script writes.
"""

from pathlib import Path

from convergence_core.config import reference
from docs import architecture
from tasks.pages.free_sql import QUESTIONS
from tasks.store.tables.tables import describe
from tasks.store.tables.views import describe_views

DOCS = Path(__file__).parent

CONFIGURATION = """# Configuration

`optimization.yaml`, key by key. `convergence schema` writes a JSON Schema for editors; the line
`# yaml-language-server: $schema=./optimization.schema.json` makes them use it. Relative paths start
from the file's own folder. An unknown key is an error that names the nearest known one.

`<name>` in a key stands for a name that you choose.

| key | type | default | meaning |
|---|---|---|---|
"""

TABLES = """# Tables

For everyone who asks a results store questions in SQL: after this page you know which view or table answers yours.

```sh
convergence query "select label, rank, posterior_mean, posterior_low, posterior_high from leaderboard join runs using (run_id) where rank <= 3"
```

`--format csv`, `json` or `parquet` writes the rows to a file. Start with the [views](#views). DuckDB reads both
views and tables: `duckdb convergence-data/catalog.duckdb`.

NULL means unknown, never zero. Money is in USD, times are UTC; `_ms`, `_s` and `_usd` name units, `_json` holds JSON.
Rewards, means and intervals lie in [0, 1]. Readers see a generation whole or not at all.

Stores, reports and exports hold requests and answers, so new files have mode 0600 and new folders 0700, or stricter by
the umask. A mode that you set stays. In CSV files, an apostrophe precedes texts that a spreadsheet would run as a
formula, and control characters become symbols (`␛`). Numbers, JSON and parquet stay unchanged.

"""

VIEWS = """## Views

Views hold what reports show. Candidates run on different cases, some easier than others, so compare their *posterior
means*, which remove case difficulty. A plain mean over a candidate's cases is called `raw_mean_reward`. During a run,
candidates behind the first 500 have no posterior (NULL).

"""

STORED = """
## Stored tables

Parquet files, one per run, generation and table, merged when the run ends. Tables without `run_id` in their key belong to no run; most hold
production data as of the latest export (`convergence fold`). Columns whose names say everything end each list.

"""


def configuration_page() -> str:
    """Return docs/configuration.md."""
    rows = []
    for row in reference():
        description = " ".join(row.description.split()).replace("|", "\\|")
        kind = row.type.replace("|", "\\|")
        rows.append(f"| `{row.key}` | {kind} | `{row.default}` | {description} |")
    return CONFIGURATION + "\n".join(rows) + "\n"


def tables_page() -> str:
    """Return docs/tables.md."""
    questions = "\n".join(f"-- {title}\n{sql}" for title, sql in QUESTIONS.items())
    section = f"## Ten questions\n\n```sql\n{questions}\n```\n\n"
    return TABLES + section + VIEWS + describe_views() + STORED + describe()


PAGES = {
    "configuration.md": configuration_page,
    "tables.md": tables_page,
    "architecture.md": architecture.page,
    "pictures/architecture.svg": architecture.picture,
}


def main() -> None:
    """Write every generated page."""
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
