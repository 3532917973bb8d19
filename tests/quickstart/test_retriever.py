import json
import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import bm25s
import numpy as np
import pytest
import yaml

from data.quickstart import retriever

FOLDER = Path(retriever.__file__).parent
PARAMETERS = yaml.safe_load((FOLDER / "optimization.yaml").read_text("utf-8"))["search_space"][
    "parameters"
]
QUESTIONS = (
    "turn a dictionary into a JSON string",
    "split off the file extension",
    "wait until all threads reach the same point",
    "OrderedDict move_to_end",
    "square root of a number",
)


def search(question: str, **params: object) -> list[str]:
    return retriever.search({"question": question}, params)["result"]


def test_defaults_of_the_search_space_are_those_of_the_function():
    defaults = {name: parameter["default"] for name, parameter in PARAMETERS.items()}
    assert defaults == asdict(retriever.Settings())


@pytest.mark.parametrize(
    ("params", "changed"),
    [
        ({"variant": "bm25l"}, {"delta": 2.0}),
        ({"tokenizer": "char"}, {"char_ngram": 3}),
        ({"tokenizer": "both"}, {"word_ngram": 2}),
        ({"expansion": "feedback"}, {"expansion_terms": 3}),
        ({"expansion": "feedback"}, {"expansion_weight": 1.0}),
        *(({}, {f"{field}_weight": 0.0}) for field in retriever.FIELDS),
        ({}, {"k1": 0.2}),
        ({}, {"b": 0.0}),
        ({}, {"stemmer": "porter"}),
        ({}, {"removes_stop_words": False}),
    ],
    ids=str,
)
def test_active_parameters_have_an_effect(params, changed):
    before = [search(question, **params) for question in QUESTIONS]
    assert before != [search(question, **(params | changed)) for question in QUESTIONS]


@pytest.fixture(scope="module")
def summaries():
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "utf8", str(FOLDER / "corpus.py")],
        capture_output=True,
        check=True,
        env={**os.environ, "TERM": "dumb"},
    )
    texts = [json.loads(line)["summary"] for line in done.stdout.splitlines()]
    return bm25s.tokenize(texts, stopwords="english", show_progress=False)


@pytest.mark.parametrize("variant", get_args(retriever.Variant))
def test_scores_equal_those_of_bm25s(summaries, variant):
    """Differential: our cut, counts and index against the library's own, up to a constant."""
    theirs = bm25s.BM25(k1=1.2, b=0.4, delta=0.8, method=variant)
    theirs.index(summaries, show_progress=False)
    only_summary = {f"{field}_weight": float(field == "summary") for field in retriever.FIELDS}
    params = {"variant": variant, "k1": 1.2, "b": 0.4, "delta": 0.8, **only_summary}
    settings = retriever._settings(params)
    for question in QUESTIONS:
        (words,) = bm25s.tokenize(
            [question], stopwords="english", return_ids=False, show_progress=False
        )
        ids = theirs.get_tokens_ids(words)
        expected = theirs.get_scores_from_ids(ids)
        if theirs.nonoccurrence_array is not None:
            expected = expected - theirs.nonoccurrence_array[ids].sum()
        np.testing.assert_allclose(retriever._scores(question, settings), expected, atol=2e-5)


MIXED: list[dict[str, object]] = [
    {"k1": 0.7},
    {"variant": "bm25l", "stemmer": "english"},
    {"tokenizer": "both", "word_ngram": 2},
    {"expansion": "feedback", "stemmer": "porter"},
]


@pytest.mark.slow
def test_threads_find_what_one_thread_finds():
    """On a module that has built nothing yet: each index is built by one thread only."""
    fresh = runpy.run_path(retriever.__file__)
    jobs = [(question, params) for params in MIXED for question in QUESTIONS] * 2
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda job: fresh["search"]({"question": job[0]}, job[1]), jobs))
    assert [each["result"] for each in found] == [search(q, **params) for q, params in jobs]
    assert fresh["_table"].cache_info().misses == len(MIXED)
    assert fresh["_index"].cache_info().misses == len(MIXED)


SCRIPT = """
import json, sys
from data.quickstart import retriever
questions, mixed = json.loads(sys.argv[1])
print(json.dumps([retriever.search({"question": q}, p) for p in mixed for q in questions]))
"""


@pytest.mark.slow
def test_another_process_with_another_hash_seed_finds_the_same():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps([QUESTIONS, MIXED])],
        capture_output=True,
        check=True,
        cwd=FOLDER.parent.parent,
        env={**os.environ, "PYTHONHASHSEED": "123"},
    )
    assert not done.stderr
    here = [{"result": search(q, **params)} for params in MIXED for q in QUESTIONS]
    assert json.loads(done.stdout) == here
