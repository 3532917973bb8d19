"""The pool of hard prompts: who is in it, who is shown, and which decisions it changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from convergence_core.sao.hard import MOST, HardPool, grounded
from convergence_core.sao.learning import with_opinion
from convergence_core.sao.preferences import Answer, Comparison, Judgement
from convergence_core.sao.rounds import Rounds, split_of
from convergence_core.sao.state import ABORTED, JudgedPair, SaoState
from tasks.loading import load
from tasks.preferences.checking import check_of


def pair(
    k: int, p: float = 0.55, *, texts: tuple[str, str] = ("a", "b"), **more: Any
) -> JudgedPair:
    return JudgedPair(
        comparison=Comparison(
            prompt=f"Which form is it for case number {k}?",
            first=Answer(text=texts[0], author="one"),
            second=Answer(text=texts[1], author="two"),
            kind="candidates",
        ),
        judgement=Judgement(p12=p, p21=p, estimator="chat"),
        **{"dropped_by": "margin", "round_number": 0, "position": k, **more},
    )


TRAIN = [k for k in range(600) if split_of(pair(k).comparison.prompt) == "train"]
FROZEN = next(k for k in range(600) if k not in TRAIN)


def test_in_the_pool_is_what_the_judge_cannot_tell_apart():
    a, b, c, d = (pair(k) for k in TRAIN[:4])
    sure = replace(a, judgement=Judgement(p12=0.9, p21=0.9, estimator="chat"))
    aborted = replace(c, dropped_by=ABORTED)
    collapsed = replace(a, is_collapsed=True)
    pool = HardPool.of([d, b, pair(FROZEN), sure, aborted, collapsed, replace(d, position=9)])
    assert pool.prompts == (b.comparison.prompt, d.comparison.prompt)
    assert len(HardPool.of([pair(k) for k in TRAIN])) == MOST


def test_a_round_shows_the_newest_and_the_others_in_turn():
    pool = HardPool(prompts=("1", "2", "3", "4"))
    assert [pool.shown(number) for number in range(4)] == [
        ("4", "3"), ("4", "2"), ("4", "1"), ("4", "3"),
    ]  # fmt: skip
    assert pool.shown(0, n=9) == ("4", "3", "2", "1")
    assert HardPool(prompts=("1",)).shown(7) == ("1",)
    assert HardPool().shown(0) == ()


def is_right(text: str) -> float | None:
    return {"right": 1.0, "wrong": 0.0, "half": 0.7}.get(text)


@pytest.mark.parametrize(
    ("texts", "p"),
    [
        (("right", "wrong"), 0.9), (("wrong", "right"), 0.1), (("right", "right"), None),
        (("right", "half"), None), (("right", "unknown"), None),
    ],
)  # fmt: skip
def test_a_check_speaks_where_it_tells_right_from_wrong(texts, p):
    found = grounded(pair(0, texts=texts), is_right)
    assert (None if found is None else found.judgement.q) == (
        None if p is None else pytest.approx(p)
    )
    assert grounded(pair(0, texts=texts), None) is None
    assert grounded(pair(0, 0.9, texts=texts), is_right) is None  # the judge could tell


def test_without_the_checks_of_hard_pairs_other_candidates_are_proposed():
    # The judge leans to `one` a little; what was executed says that `two` is right.
    pairs = [pair(k, 0.53, texts=("wrong", "right")) for k in TRAIN[:12]]
    unasked = {"one": {"x": 1}, "two": {"x": 2}}
    state = SaoState(rounds=Rounds(limit=3))

    def proposals(check: Any) -> tuple[str, ...]:
        return with_opinion(state, pairs, {"z": 0.5, "y": 0.7}, unasked, check).proposals

    assert proposals(None) == ('{"x":1}', '{"x":2}')
    assert proposals(is_right) == ('{"x":2}', '{"x":1}')


def test_no_opinion_is_taken_of_rounds_that_were_aborted_or_raised_an_alarm():
    pairs = [pair(k, 0.8) for k in TRAIN[:12]]
    unasked = {"one": {"x": 1}, "two": {"x": 2}}
    state = SaoState(rounds=Rounds(limit=3))

    def opinion(**more: Any) -> Any:
        found = [replace(one, **more) for one in pairs]
        return with_opinion(state, found, {"z": 0.5, "y": 0.7}, unasked).opinion

    assert opinion().keys() == unasked.keys()
    assert opinion(is_collapsed=True) == opinion(dropped_by=ABORTED) == {}


def test_metrics_that_need_no_expected_answer_are_checks(tmp_path: Path):
    metrics: dict[str, Any] = {
        "form": {"type": "json_schema", "weight": 1, "schema": {"required": ["office"]}},
        "number": {"type": "regex", "weight": 1, "pattern": r"\d{3}", "field": "office"},
        "exact_match": {"weight": 1},
    }
    tree: dict[str, Any] = {
        "api": {"name": "x", "kind": "openai", "endpoint": "http://127.0.0.1:9",
                "request": {"options": {"model": "m"}}},
        "search_space": {"parameters": {"temperature": {"type": "float", "min": 0, "max": 1}}},
        "evaluation": {"test_cases": [{"input": f"{k}?", "expected": "x"} for k in range(4)],
                       "metrics": metrics},
    }  # fmt: skip

    def found() -> Any:
        path = tmp_path / "optimization.yaml"
        path.write_text(yaml.safe_dump(tree), encoding="utf-8")
        return check_of(load(path))

    check = found()
    assert check('{"office": "room 114"}') == 1.0
    assert check('{"office": "upstairs"}') == 0.5
    assert check("room 114") == 0.0
    del metrics["form"], metrics["number"]
    assert found() is None
