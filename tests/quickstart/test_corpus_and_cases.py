import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data.quickstart import retriever

FOLDER = Path(retriever.__file__).parent
CASES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def names():
    return set(retriever.corpus().names)


def test_cases_are_many_and_varied():
    assert len(CASES) >= 220
    assert len({tag for case in CASES for tag in case["tags"]}) >= 60


def test_cases_have_the_expected_shape():
    for case in CASES:
        assert set(case) == {"id", "input", "expected", "tags"}, case
        assert set(case["input"]) == {"question"}, case
        assert case["input"]["question"].strip(), case
        assert set(case["expected"]) == {"relevant"}, case
        relevant = case["expected"]["relevant"]
        assert 1 <= len(set(relevant)) == len(relevant) <= 4, case
        assert case["tags"], case


def test_every_relevant_name_is_a_document(names):
    missing = {
        (case["id"], name)
        for case in CASES
        for name in case["expected"]["relevant"]
        if name not in names
    }
    assert not missing


@pytest.mark.parametrize(
    "name",
    [
        "collections.OrderedDict",
        "concurrent.futures.ThreadPoolExecutor",
        "csv.DictReader",
        "datetime.timedelta",
        "itertools.chain.from_iterable",
        "json",
        "json.dumps",
        "math.isclose",
        "open",
        "os.path.join",
        "OSError",
        "pathlib.PurePath.with_suffix",
        "print",
        "random.choice",
        "sorted",
        "str.split",
        "TimeoutError",
        "weakref.ref",
    ],
)
def test_documents_bear_the_names_people_write(names, name):
    assert name in names


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_corpus_does_not_depend_on_the_hash_seed(hash_seed):
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-X", "utf8", str(FOLDER / "corpus.py")],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TERM": "dumb"},
    )
    assert hashlib.sha256(done.stdout).hexdigest() == retriever.corpus_sha256()
