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
    """One condition of a test that is passed."""

    name: str
    passed: bool
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What the test cases say of the current settings."""

    label: str
    system: str
    is_offline: bool
    level: float
    present: Candidate
    """The defaults of the configuration."""
    champion: Candidate | None
    """Earlier test to compare with; ``None`` without one."""
    estimate: Estimate | None
    """Mean reward over all test cases; ``None`` if no case has a reward."""
    of_champion: Estimate | None
    difference: Estimate | None
    """Present settings less champion, paired by case."""
    cases: tuple[CaseAnswers, ...]
    """The champion's answers first, the current settings' second, lowest first."""
    unasked: tuple[str, ...]
    n_missing: int
    """Cases of which an evaluation has no reward."""
    limit: str | None
    """Limit of the budget that was reached, in words; ``None`` means none."""
    n_calls: int
    """Of this test."""
    cost_usd: float | None
    """Of this test; ``None`` if no price is known."""
    n_unpriced: int
    """Its calls whose price is unknown."""

    def checks(self, fail_under: float | None) -> tuple[Check, ...]:
        """Return what has to hold for the test to pass.

        Args:
            fail_under: least mean reward; ``None`` means any.
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
    """Open a test of the current settings; one that was interrupted continues.

    Args:
        loaded: the configuration and its files.
        against_champion: whether there must be a champion to evaluate on the same cases.
        budget: limits, in place of the configuration's.
        caller: see ``Caller``.

    Raises:
        ConfigurationError: the configuration gives no defaults, there is no champion, or something
            that it names is wrong.
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
    """Open the latest run of a part of a system if it was left unfinished with these very settings.

    One that has reached its budget continues with another one: with the same it would ask nothing.

    Args:
        loaded: the configuration and its files.
        caller: see ``Caller``.
        part: end of the system's name, one of ``lineage.PARTS``.
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
        stopper.pop("output", None)  # offline runs write elsewhere; it shapes no answer
    then = (before, latest.cases_sha256, latest.search_space_json)
    now = (after, loaded.cases_sha256, canonical_json(loaded.space.to_json()))
    facts_hold = all(latest.tags.get(key) == value for key, value in loaded.facts.items())
    if then != now or not facts_hold or (same_budget and latest.reason == BUDGET_REACHED):
        return None
    changed = replace(latest, config_json=config_json, config_sha256=sha256_hex(config_json))
    return assemble(changed, loaded, caller)


def assess(run: Run, *, against_champion: bool = False) -> Assessment:
    """Ask all test cases of the current settings, publish the answers, and return what they say.

    Raises:
        RunInterruptedError: it was asked to stop; what was answered is kept for the next test.
    """
    present = run.study.baseline
    assert present is not None  # noqa: S101 - checked when it was opened
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
        # Without the advice to resume, which is a search's.
        limit=None if reached is None else reached.partition(" Raise it")[0],
        n_calls=totals.n_attempts,
        cost_usd=totals.cost_usd,
        n_unpriced=n_unpriced(costs_of(run.store, run.run_id)),
    )
