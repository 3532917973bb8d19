"""Judges of a whole configuration: rules, making, the real client, and what a report says of them."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from convergence_core.budget.prices import PriceTable
from convergence_core.config import Configuration, JudgeMetric, parse_mapping
from convergence_core.errors import CandidateFault, ConfigurationError, EvaluatorFault
from convergence_core.judges.report import JudgeReport
from convergence_core.records import Case, Params, Reply, canonical_json
from convergence_core.space import Space
from convergence_core.space.builder import build_space
from tasks.calls.metric_calls import PaidCall
from tasks.metrics.judge.factory import champion_problems, label_problems, make_judges, problems
from tasks.metrics.judge.judge import LlmJudge
from tasks.metrics.judge.verdicts import passed_of, rating_of
from tasks.providers import make_llm
from tasks.report.judge_section import judge_blocks, judge_report, judge_reports, judge_sentences
from tasks.secrets.redaction import Secrets
from tasks.store.tables.parquet_store import ParquetStore
from tests.metrics.test_judge import PRICES
from tests.support.configurations import mapping
from tests.support.http_server import LoopbackServer, chat_answer
from tests.support.store_rows import RUN, generation_tables, run_record

CASE = Case(case_id="a", input="q", expected="e")
LLM = {"model": "openai/j", "endpoint": "http://127.0.0.1:1/v1", "temperature": 0.7}


def judged_by(url: str = "http://127.0.0.1:1/v1", **metrics: Any) -> Configuration:
    made = {
        name: {"weight": 1, "type": "llm_judge", "rubric": "Be right.", **more}
        for name, more in metrics.items()
    }
    return parse_mapping(
        mapping(llm={**LLM, "endpoint": url}, evaluation__metrics=made), allow_callable=True
    )


def space_of(configuration: Configuration) -> Space:
    return build_space(configuration.search_space, {})


def judges_of(
    configuration: Configuration, space: Space | None = None, **texts: str
) -> dict[str, LlmJudge]:
    return make_judges(
        configuration,
        space=space or space_of(configuration),
        texts=texts,
        rubrics={},
        make_llm=partial(make_llm, secrets=Secrets({})),
        prices=PRICES,
    )


# -- rules


def test_a_label_lies_in_the_case():
    (problem,) = problems(judged_by(quality={"label_field": "human.label"}))
    assert "begins with `input` or `expected`" in problem.rule


@pytest.mark.parametrize(
    ("mode", "labels", "words"),
    [
        ("rating", [7, "9.5", None], None),
        ("pass_fail", [True, 0, "Pass"], None),
        ("rating", [None, None], "at least one test case"),
        ("rating", [7, 11], "a number from 1 to 10"),
        ("pass_fail", [True, "maybe"], "true or false"),
    ],
)
def test_labels_are_of_the_form_of_the_mode(mode, labels, words):
    cases = [
        Case(case_id=f"c{i}", input="q", expected={"label": label})
        for i, label in enumerate(labels)
    ]
    found = label_problems(judged_by(q={"mode": mode, "label_field": "expected.label"}), cases)
    assert [words in problem.rule for problem in found] == ([] if words is None else [True])


def test_labels_are_read_as_people_write_them():
    assert [rating_of(v) for v in (7, "7", 7.5, True, 0, "x", None)] == [
        *(7.0, 7.0, 7.5),
        *(None, None, None, None),
    ]
    assert [passed_of(v) for v in (True, 1, "yes", "FAIL", 0, "0", 2, "x", None)] == [
        *(True, True, True, False, False, False),
        *(None, None, None),
    ]


def test_a_champion_text_may_be_named_by_its_file():
    texts = {"type": "text", "variants": ["a.md", "b.md"], "default": "a.md"}
    sections = mapping(search_space__parameters={"system": texts}, llm=LLM)
    sections["evaluation"]["metrics"] = {
        "q": {
            "type": "llm_judge",
            "rubric": "r",
            "mode": "pairwise",
            "champion": {"system": "b.md"},
        }
    }
    configuration = parse_mapping(sections, allow_callable=True)
    read = {"a.md": "Be brief.", "b.md": "Be kind."}
    space = build_space(configuration.search_space, read)
    assert judges_of(configuration, space, **read)["q"].champion == {"system": "Be kind."}


def test_a_champion_outside_the_space_is_a_problem_with_its_key():
    configuration = judged_by(q={"mode": "pairwise", "champion": {"k": 7}})
    small = parse_mapping(
        mapping(search_space__parameters={"k": {"type": "int", "min": 1, "max": 3}}),
        allow_callable=True,
    )
    (problem,) = champion_problems(configuration, space_of(small), {})
    assert problem.key == "evaluation.metrics.q.champion.k"
    (problem,) = champion_problems(judged_by(q={"mode": "pairwise"}), space_of(small), {})
    assert "no parameter has one" in problem.rule
    with pytest.raises(ConfigurationError, match="champion"):
        judges_of(judged_by(q={"mode": "pairwise"}), space_of(small))


# -- over a socket, with the real client


class OpenAsker:
    """Makes each call once by its ``send``, and finds it again by its key."""

    def __init__(self, champion: str = "old") -> None:
        self._champion = champion
        self.key_to_reply: dict[str, Reply] = {}

    async def ask(self, call: PaidCall) -> Reply:
        key = canonical_json([call.purpose, call.provider, call.request, call.repeat])
        if key not in self.key_to_reply:
            self.key_to_reply[key] = await call.send()
        return self.key_to_reply[key]

    async def answer_of(self, params: Params, case: Case) -> Reply:
        return Reply(value=self._champion, latency_ms=1.0)


def test_a_judge_is_priced_as_the_host_of_its_endpoint_sells_it():
    prices = PriceTable.from_mapping(
        {"version": "2026-01-02", "providers": {"deepseek": {"j": {"input": 5.0, "output": 7.0}}}}
    )
    configuration = judged_by("https://api.deepseek.com/v1", quality={})
    asker = OpenAsker()

    async def go(url: str) -> None:
        judge = make_judges(
            configuration,
            space=space_of(configuration),
            texts={},
            rubrics={},
            make_llm=partial(make_llm, secrets=Secrets({}), mock_url=url),
            prices=prices,
        )["quality"]
        await judge.judge(Reply(value="new", latency_ms=1.0), CASE, {"k": 5}, asker)
        await judge.aclose()

    said = json.dumps({"reasoning": "", "rating": 7})
    with LoopbackServer(lambda _: chat_answer(said)) as server:
        asyncio.run(go(server.url))
    (reply,) = asker.key_to_reply.values()
    assert reply.cost_usd == pytest.approx((7 * 5.0 + 3 * 7.0) / 1e6, abs=1e-12)


def test_a_refusal_that_was_billed_has_a_price():
    seen: list[CandidateFault] = []

    class Watching(OpenAsker):
        async def ask(self, call: PaidCall) -> Reply:
            try:
                return await call.send()
            except CandidateFault as fault:
                seen.append(fault)
                raise

    async def go(url: str) -> None:
        judge = judges_of(judged_by(url, quality={}))["quality"]
        with pytest.raises(EvaluatorFault):
            await judge.judge(Reply(value="x", latency_ms=1.0), CASE, {}, Watching())
        await judge.aclose()

    with LoopbackServer(lambda _: chat_answer(None, refusal="I will not.")) as server:
        asyncio.run(go(server.url + "/v1"))
    (fault,) = seen
    assert fault.billed is not None
    assert fault.billed.cost_usd == pytest.approx(19e-6)
    assert fault.billed.price_version == "2026-01-02"


# -- what a report says


def metric(mode: str = "pass_fail") -> JudgeMetric:
    return judged_by(q={"mode": mode, "label_field": "expected"}).evaluation.judges["q"]


def test_one_case_is_one_pair_however_often_it_was_judged():
    same = [("c0", v, True) for v in (1.0, 1.0, 0.0)]
    report = judge_report("q", metric(), [*same, ("c1", 0.0, False)])
    assert report.agreement is not None
    assert (report.agreement.n, report.agreement.n_equal) == (2, 2)


def test_a_judge_without_labels_or_pairs_says_nothing():
    report = judge_report("q", metric(), None)
    assert (judge_sentences(report), judge_blocks([report])) == ((), [])


def test_judgements_and_labels_are_found_in_a_store(tmp_path):
    tables = generation_tables(n=8)
    default, _ = (str(row["candidate_id"]) for row in tables["candidates"])
    evaluations = [
        {**row, "metrics": {"q": 1.0, "p": 0.5, "p.position_inconsistent": float(i % 2)}}
        for i, row in enumerate(tables["evaluations"])
    ]
    case_ids = {str(row["case_id"]) for row in evaluations if row["candidate_id"] == default}
    configuration = judged_by(
        q={"mode": "pass_fail", "label_field": "expected"}, p={"mode": "pairwise"}
    )
    cases = [Case(case_id=case_id, input="q", expected=True) for case_id in sorted(case_ids)]
    store = ParquetStore(tmp_path)
    store.save_run(run_record())
    store.publish(RUN, 0, {**tables, "evaluations": evaluations})

    def reports(baseline_id: str | None) -> tuple[JudgeReport, ...]:
        return judge_reports(
            store, RUN, configuration=configuration, cases=cases, baseline_id=baseline_id
        )

    quality, pairs = reports(default)
    assert quality.agreement is not None
    assert (quality.agreement.n, quality.agreement.n_equal) == (len(cases), len(cases))
    assert quality.of_default
    assert (pairs.agreement, pairs.n_pairs) == (None, 8)
    assert pairs.inconsistent is not None
    assert pairs.inconsistent.value == 0.5
    assert [report.of_default for report in reports(None)] == [False, False]
    assert (
        judge_reports(
            store,
            RUN,
            configuration=parse_mapping(mapping(), allow_callable=True),
            cases=cases,
            baseline_id=None,
        )
        == ()
    )
