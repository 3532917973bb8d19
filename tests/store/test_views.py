"""Which views a query needs: those it names and what they use."""

import duckdb
import pytest

from tasks.store.tables.views import VIEW_NAMES, view_statements, views_for


def test_a_query_gets_every_view_that_its_own_uses():
    for name in VIEW_NAMES:
        sql = f"SELECT * FROM {name.upper()}"  # noqa: S608 - a name of the registry
        views = view_statements({}, views_for(sql))
        with duckdb.connect() as connection:
            for statement in views.values():
                connection.execute(statement)
            connection.execute(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT view_name FROM duckdb_views() WHERE view_name <> 'runs'",
        "SELECT table_name FROM information_schema.tables WHERE table_name <> 'runs'",
        "SELECT * FROM query_table('run' || 's')",
        "SELECT tbl_name FROM sqlite_master -- of runs",
    ],
)
def test_what_may_read_the_catalog_gets_all_views(sql):
    assert views_for(sql) == set(VIEW_NAMES)
