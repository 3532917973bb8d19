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

```sh
convergence query "select label, rank, posterior_mean, posterior_low, posterior_high from leaderboard join runs using (run_id) where rank <= 3"
```

answers a question in SQL; `--format csv`, `json` or `parquet` writes the rows to a file. Begin with the
[views](#views), which hold what reports show, in one row per candidate, case or parameter. The tables below them are
what is stored. Any DuckDB reads both: `duckdb convergence-data/catalog.duckdb`.

Every column may be NULL, which means unknown and never zero. USD and milliseconds are doubles, times are UTC. A
generation is visible whole or not at all.

A store and all that is written from it (result files, reports, exports of queries and preferences, working
copies of object storage) hold texts of requests and answers. So new files have mode 0600 and new folders
0700, or less where the umask says so. A result file or export that you give another mode keeps it when it is
written again.

In CSV files a text that a spreadsheet would run as a formula (beginning, after blanks, with `=`, `+`, `-` or
`@`, also full-width, or with a tab or an end of line) has an apostrophe in front, and control characters are written as their pictures (`␛`), so that no text drives a terminal.
Numbers stay numbers. JSON
and parquet hold every text as it is.

"""


VIEWS = """## Views

Made of the tables. Means that compare candidates are *posterior means*: what is believed of a candidate after the
answers seen, with the difficulty of its cases taken off. The run itself writes them at the end of each generation, so
reports, result files, Prefect's artifacts and the views show the same numbers. Candidates are section different cases,
some of them easier than others, so a plain mean over a candidate's own cases compares nothing: it is called
`raw_mean_reward`. Of metrics, reports show means that are adjusted for the cases; the view `metrics` holds each value
as it was measured. Runs of versions before the table `estimates` have NULL where these views show a posterior. Where a
run goes on, candidates behind the first 500 have NULL, too.

"""

STORED = """
## What is stored

Parquet files, one per run, generation and table; when a run ends its files are merged.

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
