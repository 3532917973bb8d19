"""Assessment of the current settings on all test cases, without a search."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Unpack

from convergence_core.errors import ConfigurationError, RunInterruptedError
from convergence_core.records import (
    Assignment,
    Candidate,
    Cell,
    Role,
    Trial,
    canonical_json,
    sha256_hex,
)
from convergence_core.result import CaseAnswers, Estimate, worst_first
from convergence_core.result.verdict import n_unpriced
from convergence_core.search.recommend import mean_interval, paired_difference
from convergence_core.search.study import limit_reached
from tasks.inputs.loader import Loaded
from tasks.inputs.storage import store_path
from tasks.report.answers import EvaluatedCase, evaluated_cases, paired_cases, with_judges_reasons
from tasks.report.candidates import Final
from tasks.report.evidence import costs_of
from tasks.run.adoption import champion_of_run
from tasks.run.assembly import Caller, assemble
from tasks.run.opener import Limits, prepare_run, with_overrides
from tasks.run.publication import publish_final
from tasks.run.run import Run
from tasks.store.tables.lineage import OFFLINE, TEST_TAG
from tasks.store.tables.parquet_store import ParquetStore
from tasks.store.tables.rows import candidate_rows

ROLES: tuple[Role, ...] = ("search", "holdout")

BUDGET_REACHED = "the budget was reached before all cases ran"
"""Reason of a test that continues only with another budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Condition for passing a test."""

    name: str
    passed: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """Result of a test of the current settings."""

    label: str
    system: str
    is_offline: bool
    level: float
    present: Candidate
    """The defaults of the configuration."""
    champion: Candidate | None
    """The champion to compare with; ``None`` without a comparison."""
    estimate: Estimate | None
    """Mean reward over all test cases; ``None`` if no case has a reward."""
    of_champion: Estimate | None
    difference: Estimate | None
    """Current settings minus champion, paired by case."""
    cases: tuple[CaseAnswers, ...]
    """Answers per case: the champion's first, the current settings' second; the lowest case first.
    """
    unasked: tuple[str, ...]
    n_missing: int
    """Cases with an evaluation without a reward."""
    limit: str | None
    """Reached limit of the budget, in words; ``None`` if no limit was reached."""
    n_calls: int
    """Calls of this test."""
    cost_usd: float | None
    """Cost of this test; ``None`` if no price is known."""
    n_unpriced: int
    """Calls of this test with an unknown price."""

    def checks(self, fail_under: float | None) -> tuple[Check, ...]:
        """Return the conditions for passing the test.

        Args:
            fail_under: minimum mean reward; ``None`` means no minimum.
        """
        n_cases = len(self.cases) + len(self.unasked)
        problems = [
            Check(
                name="every case has a reward",
                passed=not self.n_missing,
                sentence="every case has a reward"
                if not self.n_missing
                else f"{self.n_missing} of {n_cases} cases have no reward, or not for every answer "
                "(network, server, metric or budget), so the test is not complete",
            )
        ]
        if fail_under is not None:
            mean = None if self.estimate is None else self.estimate.mean
            passed = mean is not None and mean >= fail_under
            shown = "none" if mean is None else f"{mean:.3f}"
            how = "at least" if passed else "not at least"
            problems.append(
                Check(
                    name=f"mean reward at least {fail_under:g}",
                    passed=passed,
                    sentence=f"the mean reward is {shown}, {how} {fail_under:g}",
                )
            )
        if self.champion is not None:
            problems.append(self._against_champion())
        return tuple(problems)

    def _against_champion(self) -> Check:
        name = "not worse than the champion"
        if self.champion is not None and self.champion.candidate_id == self.present.candidate_id:
            text = "the current settings are the champion's"
            return Check(name=name, passed=True, sentence=text)
        gap = self.difference
        if gap is None:
            text = "no case compares the current settings with the champion"
            return Check(name=name, passed=False, sentence=text)
        ends = f"{gap.mean:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        if gap.high < 0:
            text = f"the current settings are worse than the champion: {ends}"
        elif gap.low > 0:
            text = f"the current settings are better than the champion: {ends}"
        else:
            text = f"these cases do not separate the current settings from the champion: {ends}"
        return Check(name=name, passed=gap.high >= 0, sentence=text)


def open_assessment(
    loaded: Loaded,
    *,
    against_champion: bool = False,
    budget: Limits | None = None,
    **caller: Unpack[Caller],
) -> Run:
    """Open a test of the current settings, or continue an interrupted one.

    Args:
        loaded: the configuration and its files.
        against_champion: whether to evaluate the champion, which must exist, on the same cases.
        budget: limits that replace the configuration's.
        caller: see ``Caller``.

    Raises:
        ConfigurationError: the configuration has no defaults, there is no champion, or a named
            object is wrong.
        LeaseHeldError: another process tests this system.
        StoreError: the store cannot be used.
    """
    if loaded.space.baseline() is None:
        rule = "must have a `default:`, the current values, to be tested"
        fix = "Write `default:` of at least one parameter."
        raise ConfigurationError.of("search_space.parameters", rule, fix)
    configuration = with_overrides(loaded.configuration, budget=budget)
    loaded = replace(loaded, configuration=configuration)
    run = interrupted(loaded, caller, TEST_TAG) or prepare_run(loaded, part=TEST_TAG, **caller)
    if against_champion and champion_of_run(run) is None:
        run.close()
        rule = "champion must find one in the store that the search space still holds"
        fix = "Make one with `convergence promote`, or leave out `--against champion`."
        raise ConfigurationError.of("--against", rule, fix)
    return run


def interrupted(loaded: Loaded, caller: Caller, part: str) -> Run | None:
    """Open the latest run of a part of a system if it is unfinished and has these settings.

    A run that has reached its budget continues only with another budget; with the same it would
    make no call.

    Args:
        loaded: the configuration and its files.
        caller: see ``Caller``.
        part: suffix of the system's name, one of ``lineage.PARTS``.
    """
    name = loaded.configuration.api.name
    if caller.get("mock_url") is not None:
        name = f"{name}.{OFFLINE}"
    latest = next(iter(ParquetStore(store_path(loaded)).runs(f"{name}.{part}")), None)
    if latest is None or latest.status == "done":
        return None
    config_json = loaded.configuration.to_json()
    before, after = json.loads(latest.config_json), json.loads(config_json)
    same_budget = before.pop("budget", None) == after.pop("budget", None)
    for stopper in (before, after):
        stopper.pop("output", None)  # offline runs write elsewhere; it affects no answer
    then = (before, latest.cases_sha256, latest.search_space_json)
    now = (after, loaded.cases_sha256, canonical_json(loaded.space.to_json()))
    facts_hold = all(latest.tags.get(key) == value for key, value in loaded.facts.items())
    if then != now or not facts_hold or (same_budget and latest.reason == BUDGET_REACHED):
        return None
    changed = replace(latest, config_json=config_json, config_sha256=sha256_hex(config_json))
    return assemble(changed, loaded, caller)


def assess(run: Run, *, against_champion: bool = False) -> Assessment:
    """Evaluate the current settings on all test cases and publish the evaluations.

    Raises:
        RunInterruptedError: the run received a stop request; the next test reuses its answers.
    """
    present = run.study.baseline
    assert present is not None  # noqa: S101 - checked at the opening
    champion = champion_of_run(run) if against_champion else None
    subjects = {
        candidate.candidate_id: candidate
        for candidate in (present, champion)
        if candidate is not None
    }
    with run:
        run.begin_final()
        with ThreadPoolExecutor(len(subjects)) as threads:
            trials = [
                *threads.map(
                    lambda candidate: run.evaluate(_cells(run, candidate), None), subjects.values()
                )
            ]
        if run.is_stopping:
            raise RunInterruptedError(
                f"test {run.label} was stopped. Paid answers are kept; run the same `convergence test` "
                "again to continue."
            )
        evaluations = [evaluation for trial in trials for evaluation in trial.evaluations]
        candidates = candidate_rows(run.run_id, None, [trial.candidate for trial in trials])
        publish_final(run, evaluations, candidates=candidates)
        assessment = _assessment(run, trials, present, champion)
        if assessment.limit is None:
            run.save("done", "the current settings were tested")
        else:
            run.save("stopped", BUDGET_REACHED)
    return assessment


def _cells(run: Run, candidate: Candidate) -> Assignment:
    held_out = {case.case_id for case in run.loaded.holdout_cases}
    return Assignment(
        candidate=candidate,
        cells=tuple(
            Cell(
                candidate_id=candidate.candidate_id,
                case_id=case.case_id,
                repeat=repeat,
                role="holdout" if case.case_id in held_out else "search",
            )
            for case in run.loaded.cases
            for repeat in range(run.study.schedule.repeats)
        ),
        label=run.study.space.name(candidate, n=3),
    )


def _assessment(
    run: Run, trials: Sequence[Trial], present: Candidate, champion: Candidate | None
) -> Assessment:
    level = run.configuration.optimization.mab.confidence_level
    final = Final.of(trials, run.loaded.cases, level)

    def rewards(candidate: Candidate) -> dict[str, float]:
        by_role = (final.rewards(candidate.candidate_id, role) for role in ROLES)
        return {case: reward for of_role in by_role for case, reward in of_role.items()}

    weighing: dict[str, Any] = {"level": level, "weights": final.weights, "groups": final.groups}
    present_rewards, other = rewards(present), {} if champion is None else rewards(champion)
    is_apart = champion is not None and champion.candidate_id != present.candidate_id

    def answers(candidate: Candidate | None) -> dict[tuple[str, Role], EvaluatedCase]:
        candidate_id = None if candidate is None else candidate.candidate_id
        cases = evaluated_cases(run.store, run.run_id, candidate_id)
        return with_judges_reasons(run.store, run.run_id, run.configuration, cases)

    cases = paired_cases(
        answers(champion if is_apart else None),
        answers(present),
        {case.case_id: case for case in run.loaded.cases},
        keep_text=run.configuration.storage.keep_text,
    )
    evaluations = [evaluation for trial in trials for evaluation in trial.evaluations]
    totals, reached = run.journal.totals(run.run_id), limit_reached(trials)
    known = {case.case_id for case in cases}
    return Assessment(
        label=run.label,
        system=run.configuration.api.name,
        is_offline=OFFLINE in run.record.tags,
        level=level,
        present=present,
        champion=champion,
        estimate=mean_interval(present_rewards, **weighing),
        of_champion=mean_interval(other, **weighing),
        difference=paired_difference(present_rewards, other, **weighing) if is_apart else None,
        cases=worst_first(cases),
        n_missing=len({e.cell.case_id for e in evaluations if e.reward is None}),
        unasked=tuple(c.case_id for c in run.loaded.cases if c.case_id not in known),
        # Without the advice to resume, which applies to searches.
        limit=None if reached is None else reached.partition(" Raise it")[0],
        n_calls=totals.n_attempts,
        cost_usd=totals.cost_usd,
        n_unpriced=n_unpriced(costs_of(run.store, run.run_id)),
    )
