import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from data.quickstart import corpus as reader, retriever

FOLDER = Path(retriever.__file__).parent
CASES = [json.loads(line) for line in (FOLDER / "cases.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture(scope="module")
def names():
    return set(retriever.corpus().names)


def test_cases_are_many_and_varied():
    assert len(CASES) >= 220
    assert len({tag for case in CASES for tag in case["tags"]}) >= 60


@pytest.mark.parametrize("key", ["id", "question"])
def test_ids_and_questions_are_unique(key):
    values = [case["id"] if key == "id" else case["input"]["question"] for case in CASES]
    assert len(set(values)) == len(values)


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


def test_no_question_holds_the_dotted_name_of_its_answer():
    for case in CASES:
        for name in case["expected"]["relevant"]:
            assert "." not in name or name not in case["input"]["question"], case


def test_names_are_sorted_and_unique():
    names = retriever.corpus().names
    assert list(names) == sorted(set(names))


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


@pytest.mark.parametrize(
    "name",
    [
        "asyncio.TimeoutError",  # the built-in
        "builtins.str.split",
        "io.open",
        "IOError",
        "json.decoder.JSONDecoder",
        "posixpath.join",
        "random.Random.choice",
        "secrets.choice",
    ],
)
def test_other_names_of_the_same_object_are_no_documents(names, name):
    assert name not in names


@pytest.mark.parametrize(
    "module", ["antigravity", "this", "idlelib", "turtledemo", "lib2to3", "test"]
)
def test_modules_whose_import_does_something_are_not_read(module):
    assert module not in {name.partition(".")[0] for name in reader.MODULES}


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_corpus_does_not_depend_on_the_hash_seed(hash_seed):
    done = subprocess.run(
        [sys.executable, "-S", "-P", "-X", "utf8", str(FOLDER / "corpus.py")],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "TERM": "dumb"},
    )
    assert hashlib.sha256(done.stdout).hexdigest() == retriever.corpus_sha256()


def test_corpus_holds_no_addresses_of_this_process():
    texts = " ".join(retriever.corpus().vocabulary)
    assert "0x7f" not in texts
