"""Write the generated pages: configuration keys, tables, rooms and their picture.

    python -m docs.build

A test checks that the pages equal this script's output.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from docs import architecture
from docs.configuration_keys import ReferenceRow, reference
from tasks.pages.free_sql import QUESTIONS
from tasks.store.tables.columns import Table
from tasks.store.tables.tables import TABLES as STORED_TABLES
from tasks.store.tables.views import DERIVED

DOCS = Path(__file__).parent

CONFIGURATION = """# Configuration

For everyone who writes an `optimization.yaml`: after this page you know which key sets what. Start with the
[example](#everyday-keys); look up the others [by section](#all-keys).

`convergence schema > optimization.schema.json` writes a JSON Schema. The first line of the example makes editors use
it. `convergence validate` checks a file and reports keys without effect. An unknown key is an error that names the
nearest known key. Relative paths start from the file's folder.

## Everyday keys

```yaml
# yaml-language-server: $schema=./optimization.schema.json
api:
  name: topics  # runs of one name belong together
  description: Names the topic of a question in one word.
  kind: openai  # or http, function, anthropic …
  auth: {token_env: OPENAI_API_KEY}
  endpoint: https://api.openai.com/v1
  request:
    timeout_seconds: 30
    messages:
      - {role: system, content: "{prompt}"}  # a parameter
      - {role: user, content: "{input.question}"}  # a field of the test case
search_space:
  parameters:
    model: {type: categorical, choices: [gpt-4o-mini, gpt-4o], default: gpt-4o-mini}
    temperature: {type: float, min: 0, max: 1, default: 0}
    prompt:
      type: text
      default: "Name the topic."
      variants: ["Name the topic.", "Answer with one word: the topic."]
      mutate: true  # the model of `llm` writes more variants
  constraints: ['model == "gpt-4o" or temperature < 0.9']
evaluation:
  test_cases: {path: cases.csv, holdout: 0.25}  # held-out quarter
  repeats: 1
  metrics:
    correct: {type: exact_match, weight: 1}
    cost_usd: {weight: 0.1, scale: {good: 0, bad: 0.001}}
    latency_ms: {weight: 0, max: 5000}  # slower answers score 0
optimization:
  seed: 1
  evolution: {population_size: 20, generations: 10}
  execution: {parallel_workers: 5}
budget: {max_usd: 1, max_calls: 2000}
cache: 7d  # reuse answers up to a week old
llm: {model: openai/gpt-4o-mini, api_key_env: OPENAI_API_KEY}
promotion: {alpha: 0.05}
storage: {path: ./convergence-data}
output: {save_path: ./results}
```

## All keys

Keys stand under their section. Parentheses hold the default in code font, or *required*, and the choices. `<name>` is
a name that you choose. `api`, `search_space` and `evaluation` are required.

"""

TABLES = """# Tables

For everyone who asks a results store questions in SQL: after this page you know which view or table answers yours.

```sh
convergence query "select label, rank, posterior_mean, posterior_low, posterior_high from leaderboard join runs using (run_id) where rank <= 3"
```

`--format csv`, `json` or `parquet` writes the rows to a file. Start with the [views](#views).

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


MOST_INLINE = 3
"""Maximum keys of a section without a separate heading."""
PLAIN = frozenset({"text", "integer", "number", "boolean", "mapping", "any JSON"})
"""Types that a key's meaning already implies."""
NO_DEFAULT: Mapping[str, list[str]] = {
    "required": ["*required*"],
    **{text: [] for text in ("absent", "its defaults", "see text", '""', "{}", "[]")},
}
"""Uninformative default → its replacement."""


def configuration_page() -> str:
    """Return docs/configuration.md."""
    rows = {row.key: row for row in reference()}
    sections = [key for key in rows if "." not in key]
    parts = [CONFIGURATION, " · ".join(f"[{key}](#{key})" for key in sections), "\n"]
    headings = [*sections, *(key for key in rows if _n_below(key, rows) > MOST_INLINE)]
    for key, row in rows.items():
        if key in headings:
            level = "###" if "." in key else "##"
            parts.append(f"\n{level} `{key}`\n\n{_meaning(row)}\n\n")
            below = [other for other in rows if other != key and _heading(other, headings) == key]
            parts.extend(_line(rows[other], key) for other in below)
    return "".join(parts)


def _n_below(key: str, rows: Mapping[str, ReferenceRow]) -> int:
    return sum(other.startswith((f"{key}.", f"{key}[")) for other in rows)


def _heading(key: str, headings: Collection[str]) -> str:
    """Return the nearest heading at or above a key."""
    above = [heading for heading in headings if key.startswith((f"{heading}.", f"{heading}["))]
    return key if key in headings else max(above, key=len)


def _line(row: ReferenceRow, heading: str) -> str:
    kinds = row.type.removeprefix("list of ").split(" | ")
    choices = [] if "mapping" in row.type or set(kinds) <= PLAIN else kinds
    if row.default in {*choices, str(choices)}:
        facts = [f"`{kind}`" if kind == row.default else kind for kind in choices]
    else:
        facts = [*NO_DEFAULT.get(row.default, [f"`{row.default}`"]), *choices]
    inside = f" ({', '.join(facts)})" if facts else ""
    return f"- `{row.key[len(heading) + 1 :]}`{inside}: {_meaning(row)}\n"


def _meaning(row: ReferenceRow) -> str:
    return " ".join(row.description.split())


def tables_page() -> str:
    """Return docs/tables.md."""
    questions = "\n".join(f"-- {title}\n{sql}" for title, sql in QUESTIONS.items())
    section = f"## Ten questions\n\n```sql\n{questions}\n```\n\n"
    views = "".join(f"- `{name}`: {meaning}\n" for name, (meaning, _) in DERIVED.items())
    stored = "\n".join(map(_stored_table, STORED_TABLES.values()))
    return TABLES + section + VIEWS + views + STORED + stored


def _stored_table(table: Table) -> str:
    rows = [f"- `{column.name}`: {column.meaning}" for column in table.columns if column.meaning]
    plain = ", ".join(f"`{column.name}`" for column in table.columns if not column.meaning)
    head = f"### {table.name}\n\n{table.meaning} Key: {', '.join(table.key)}.\n\n"
    return head + "\n".join([*rows, *([f"- {plain}"] if plain else [])]) + "\n"


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
