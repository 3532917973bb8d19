"""What sources of settings got and brought: credit along ancestry."""

import pytest

from convergence_core.evidence import Archive, Member
from convergence_core.records import Candidate, Origin
from convergence_core.search.source_report import LINE, POOL, parts_of, source_reports

ROWS: tuple[tuple[str, Origin, tuple[str, ...]], ...] = (
    ("a", "default", ()),
    ("b", "sample", ()),
    ("c", "written", ()),
    ("d", "mutation", ("b",)),
    ("e", "crossover", ("c", "d")),
    ("f", "mutation", ("a",)),
)
ARCHIVE = Archive(
    {
        name: Member(
            candidate=Candidate(candidate_id=name, params={}, origin=origin, parent_ids=parents),
            generation=0,
            rewards={("case", 0): 0.5},
        )
        for name, origin, parents in ROWS
    }
)
MEANS = {"a": 0.5, "b": 0.4, "c": 0.6, "d": 0.45, "e": 0.7, "f": 0.55}


def test_a_bred_setting_counts_for_its_line():
    parts = parts_of(ARCHIVE)
    assert parts["a"] == {}
    assert parts["f"] == {POOL: 1.0}  # the defaults are no source
    assert parts["e"] == pytest.approx({POOL: 1.0 - LINE / 2, "edits": LINE / 2})


def test_who_took_the_lead_and_what_it_brought():
    pool, edits = source_reports(ARCHIVE, MEANS)
    assert (pool.source, pool.n_settings, pool.n_evaluations, pool.n_leads) == (POOL, 4, 4, 1)
    assert (edits.source, edits.n_settings, edits.n_leads) == ("edits", 1, 1)
    assert edits.gain == pytest.approx(0.1 + 0.1 * LINE / 2)
    assert pool.gain == pytest.approx(0.1 * (1.0 - LINE / 2))


def test_the_first_setting_gains_on_nobody():
    (edits,) = source_reports(Archive({"c": ARCHIVE.members["c"]}), {"c": 0.9})
    assert (edits.n_leads, edits.gain) == (0, 0.0)
