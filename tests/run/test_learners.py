"""Learners of a run: each advises upon those before it, and learns with the generation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from convergence_core.ports import Row
from convergence_core.records import Json, Params, Trial
from convergence_core.search.learner import Learner, LearnerStep
from convergence_core.search.sampler import Advice
from convergence_core.search.study import PlannedGeneration, Study
from convergence_core.search.study_state import StudyState
from tasks.inputs.loader import load
from tasks.run.opener import prepare_run, resume_run
from tasks.run.publication import publish_generation
from tasks.run.run import Run
from tests.support.optimizations import write_project

POINT: Params = {"x": 0.25, "kind": "b"}


@dataclass
class Recorder:
    """A learner that writes down what it is called with."""

    name: str
    own: Advice = field(default_factory=Advice)
    disabled_reason: str | None = None
    variants: Mapping[str, Sequence[str]] = field(default_factory=dict)
    vectors: Mapping[str, str] = field(default_factory=dict)
    seen: list[tuple[str, object]] = field(default_factory=list)

    def is_due(self, state: StudyState) -> bool:
        return state.next_generation > 0

    def think(self, study: Study, state: StudyState, advice: Advice) -> int:
        self.seen.append(("think", advice))
        return 7

    def advise(self, study: Study, state: StudyState, advice: Advice) -> Advice:
        self.seen.append(("advise", advice))
        return replace(advice, preferred=(*advice.preferred, *self.own.preferred))

    def learn(
        self, study: Study, state: StudyState, asked: PlannedGeneration, trials: Sequence[Trial]
    ) -> LearnerStep:
        self.seen.append(("learn", len(trials)))
        learned: Json = {"n": state.next_generation}
        tables: dict[str, list[Row]] = {"payloads": []}
        return LearnerStep(learned=learned, tables=tables)

    def commit(self) -> None:
        self.seen.append(("commit", None))

    def close(self) -> None:
        self.seen.append(("close", None))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return prepare_run(load(write_project(tmp_path)))


def give(run: Run, *learners: Learner) -> None:
    run.learners = {learner.name: learner for learner in learners}
    for learner in learners:
        run.held.callback(learner.close)


def play(run: Run) -> None:
    plan = run.ask()
    trials = [run.evaluate(a, run.next_generation) for a in plan.assignments]
    publish_generation(run, run.learn(trials), None)


def test_each_learner_hears_those_before_it_and_learns_what_was_asked(run: Run):
    first = Recorder("first", own=Advice(preferred=(POINT,)))
    second = Recorder("second")
    give(run, first, second)
    with run:
        assert not run.is_due("first")
        play(run)
        assert run.is_due("first")
        assert not run.is_due("third")
        assert (run.think("second"), run.think("third")) == (7, 0)
        run.ask()
        assert run.state.learned == {"first": {"n": 0}, "second": {"n": 0}}
        checkpoint = run.store.checkpoint(run.run_id)
        assert checkpoint is not None
        assert StudyState.from_checkpoint(checkpoint) == run.state
    heard = Advice(preferred=(POINT,))
    assert first.seen[:3] == [("advise", Advice()), ("learn", 10), ("commit", None)]
    assert ("think", heard) in second.seen
    assert ("advise", heard) in second.seen
    assert first.seen[-1] == second.seen[-1] == ("close", None)


def test_while_missing_cells_are_asked_again_no_learner_does_anything(run: Run):
    found = Recorder("found")
    give(run, found)
    with run:
        play(run)
        archive = run.state.search.archive
        name, member = next(iter(archive.members.items()))
        lost = replace(member, missing=frozenset({("c00", 0)}))
        archive = replace(archive, members={**archive.members, name: lost})
        search = replace(run.state.search, archive=archive)
        run.state = replace(run.state, search=search, repairs_next=True)
        n_seen = len(found.seen)
        assert not run.is_due("found")
        assert run.think("found") == 0
        play(run)
        assert run.state.n_repairs == 1
        assert {what for what, _ in found.seen[n_seen:]} == {"advise"}


def test_a_resumed_run_hands_a_learner_nothing_it_has_not_saved(run: Run):
    give(run, Recorder("own"))
    with run:
        play(run)
    again = resume_run(run.store.path)
    with again:
        assert again.state.learned == {"own": {"n": 0}}
        play(again)  # a learner that is gone keeps its state
        assert again.state.learned == {"own": {"n": 0}}
