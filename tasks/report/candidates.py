"""Reports of single candidates: re-estimation, search, leaderboard row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from convergence_core.evidence import Member
from convergence_core.records import Candidate, Case, Evaluation, Ranked, Role, Trial, fields_of
from convergence_core.result import CandidateReport, Estimate, LeaderboardRow
from convergence_core.search.recommend import mean_interval, paired_difference
from convergence_core.search.sampler import SearchState
from convergence_core.space import Space
from tasks.inputs.cases import groups_of
from tasks.report.evidence import Metrics, mean_of_known, metric_or


@dataclass(frozen=True, slots=True, kw_only=True)
class Final:
    """The re-estimation, by candidate, role and case."""

    trials: Sequence[Trial]
    level: float
    weights: Mapping[str, float]
    groups: Mapping[str, str]

    @classmethod
    def of(cls, trials: Sequence[Trial], cases: Iterable[Case], level: float) -> "Final":
        """Return the re-estimation of trials, with the cases' weights and groups."""
        cases = tuple(cases)
        weights = {case.case_id: case.weight for case in cases}
        return cls(trials=trials, level=level, weights=weights, groups=groups_of(cases))

    def candidate(self, candidate_id: str) -> Candidate | None:
        """Return a candidate of the re-estimation; ``None`` if it has none of this id."""
        candidates = (trial.candidate for trial in self.trials)
        return next(
            (candidate for candidate in candidates if candidate.candidate_id == candidate_id), None
        )

    def rewards(self, candidate_id: str | None, role: Role) -> dict[str, float]:
        """Return case → mean reward over repeats; cases without a reward are absent."""
        return _by_case(
            (evaluation, evaluation.reward)
            for evaluation in self._evaluations(candidate_id)
            if evaluation.cell.role == role
        )

    def answer_usd(self, candidate_id: str) -> float | None:
        """Return a candidate's mean price per answer by case weight; ``None`` if unknown.

        Billed failures count, and so do answers that another evaluation paid for.
        """
        return self._answer_mean(candidate_id, "cost_usd", "price_usd")

    def answer_ms(self, candidate_id: str) -> float | None:
        """Return a candidate's mean latency per answer by case weight; ``None`` if unknown."""
        return self._answer_mean(candidate_id, "latency_ms", "latency_ms")

    def _answer_mean(self, candidate_id: str, metric: str, field: str) -> float | None:
        means = _by_case(
            (evaluation, metric_or(metric, evaluation.metrics, getattr(evaluation, field)))
            for evaluation in self._evaluations(candidate_id)
        )
        return mean_of_known(means.values(), (self.weights.get(case, 1.0) for case in means))

    def _evaluations(self, candidate_id: str | None) -> Iterator[Evaluation]:
        for trial in self.trials:
            if trial.candidate.candidate_id == candidate_id:
                yield from trial.evaluations

    def estimate(self, candidate_id: str, role: Role) -> Estimate | None:
        """Return a candidate's mean on the cells of a role; ``None`` if it has no reward."""
        rewards = self.rewards(candidate_id, role)
        weights, groups = self.weights, self.groups
        return mean_interval(rewards, level=self.level, weights=weights, groups=groups)

    def difference(self, a: str | None, b: str | None, role: Role) -> Estimate | None:
        """Return the paired difference of two candidates on a role's cells.

        ``None`` if they are the same or share no case.
        """
        if a is None or b is None or a == b:
            return None
        rewards = self.rewards(a, role), self.rewards(b, role)
        weights, groups = self.weights, self.groups
        return paired_difference(*rewards, level=self.level, weights=weights, groups=groups)


def _by_case(values: Iterable[tuple[Evaluation, float | None]]) -> dict[str, float]:
    """Return case → mean of the known values; cases without one are absent."""
    seen: dict[str, list[float]] = {}
    for evaluation, value in values:
        if value is not None:
            seen.setdefault(evaluation.cell.case_id, []).append(value)
    return {case: sum(known) / len(known) for case, known in seen.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Makes reports and rows of ranked candidates."""

    space: Space
    names: Mapping[str, str]
    """Candidate → display name."""
    search: SearchState
    metrics: Metrics
    cells: Mapping[str, Mapping[str, int]]
    """Candidate → counts of its search cells, as fields of ``LeaderboardRow``."""
    final: Final
    standing: Mapping[str, Ranked]
    level: float

    def report(self, candidate_id: str | None) -> CandidateReport | None:
        """Return a candidate's report; ``None`` if it has no estimate."""
        name = candidate_id or ""
        member = self.search.archive.members.get(name)
        candidate = self.final.candidate(name) if member is None else member.candidate
        search = self._of_search(name, member)
        fresh, holdout = self.final.estimate(name, "fresh"), self.final.estimate(name, "holdout")
        if candidate is None or (search is None and fresh is None and holdout is None):
            return None
        return CandidateReport(
            candidate_id=name,
            label=self.names[name],
            params=dict(candidate.params),
            origin=candidate.origin,
            generation=None if member is None else member.generation,
            search=search,
            fresh=fresh,
            holdout=holdout,
            answer_usd=self.final.answer_usd(name),
            answer_ms=self.final.answer_ms(name),
            metrics=self.metrics.get(name, {}),
        )

    def row(self, rank: int, ranked: Ranked) -> LeaderboardRow:
        """Return a candidate's row of the leaderboard."""
        member = self.search.archive.members[ranked.candidate_id]
        return LeaderboardRow(
            **(asdict(ranked) | dict(self.cells[ranked.candidate_id])),
            rank=rank,
            label=self.names[ranked.candidate_id],
            params=dict(member.candidate.params),
            metrics=self.metrics.get(ranked.candidate_id, {}).get("search", {}),
            origin=member.candidate.origin,
            generation=member.generation,
        )

    def _of_search(self, candidate_id: str, member: Member | None) -> Estimate | None:
        ranked = self.standing.get(candidate_id)
        if ranked is None or member is None:
            return None
        shared = fields_of(ranked, "mean", "low", "high", "n_cases")
        return Estimate(**shared, level=self.level)
