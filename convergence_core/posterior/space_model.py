"""Surrogate of the search: a Gaussian process on evidence without case effects.

Cells become one measurement per candidate (``case_effects``). Rewards are warped, so that crashes
do not bend the surface (``warped_posterior``). A process over the space (``gaussian_process``)
jointly predicts evaluated and new candidates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeAlias

import numpy as np

from convergence_core.config import Configuration
from convergence_core.config.search_space import TextParam
from convergence_core.evidence import Archive, Member
from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.gaussian_process import (
    FREE_NOISE,
    MEASURED_NOISE,
    NO_NOISE,
    GaussianProcess,
    Repeats,
)
from convergence_core.posterior.kernel import Kernel
from convergence_core.posterior.prior_runs import EarlierRun, newest_within, with_prior_runs
from convergence_core.posterior.warped_posterior import (
    Bounds,
    Warp,
    WarpedEvidence,
    WarpedPosterior,
)
from convergence_core.records import Candidate, Json, Params
from convergence_core.space import Choice, Space
from convergence_core.space.arrays import Encoding, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthPrice:
    """Price of prompts by length."""

    per_1000: float
    """Reward deducted per 1,000 characters."""
    parameters: tuple[str, ...]
    """Priced prompt parameters."""

    @classmethod
    def of(cls, configuration: Configuration) -> Self | None:
        """Return ``prompts.length_price`` for prompts with ``mutate``, or ``None``."""
        price = configuration.prompts.length_price
        named = tuple(
            name
            for name, parameter in configuration.search_space.parameters.items()
            if isinstance(parameter, TextParam) and parameter.mutate
        )
        return cls(per_1000=price, parameters=named) if price and named else None

    def of_text(self, text: str) -> float:
        """Return the price of a prompt."""
        return self.per_1000 * len(text) / 1000.0

    def of_params(self, params: Params) -> float:
        """Return the total price of a candidate's active prompts."""
        return sum(self.of_text(str(params[name])) for name in self.parameters if name in params)

    def of_points(self, encoding: Encoding, points: Points) -> np.ndarray:
        """Return the total price of each candidate's active prompts, (n,)."""
        prices = np.zeros(len(points))
        for j, name in enumerate(encoding.choice_names):
            parameter = encoding.space.parameters[name]
            if name in self.parameters and isinstance(parameter, Choice):
                costs = [self.of_text(str(text)) for text in parameter.choices]
                prices += np.array([*costs, 0.0])[points.codes[:, j]]
        return prices


MAX_ROWS = 300
"""Maximum candidates in the training data: the cost grows with their cube."""
N_STEPS = 25
"""Hyper-parameter optimizer iterations from the prior."""
QUIET = 0.02
"""Noise variance, in units of the variance of candidates' rewards, that counts as small."""
SURELY = 0.999
"""Confidence level of that comparison."""
N_FITS = 2
"""Number of cached fits: a generation needs those before and after it."""
N_OWN_STEPS = 12
"""Optimizer iterations from a process without individual effects to one with them."""
MEMORY_KEY = "log_params"
"""Key of the hyper-parameters in a sampler's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceModel:
    """Settings of the surrogate."""

    space: Space
    max_rows: int = MAX_ROWS
    """Maximum candidates; of more, the best half, the newest quarter and a spread quarter are
    used."""
    bounds: Bounds = (0.0, 1.0)
    """Range of rewards; ``None`` means unbounded."""
    deterministic: bool = False
    """Whether a repeated case gets the same reward."""
    price: LengthPrice | None = None
    """Price of prompts in comparisons of candidates; ``None`` if length is free."""
    earlier: tuple[EarlierRun, ...] = ()
    """Prior runs of the same system, weighted by their agreement with this one."""
    start: tuple[float, ...] | None = None
    """Log hyper-parameters of an earlier fit; ``None`` means the prior's medians."""
    start_steps: int = N_STEPS
    """Optimizer iterations from ``start``."""
    encoding: Encoding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Encode the space once."""
        object.__setattr__(self, "encoding", Encoding.of(self.space))

    def warm(self, memory: Mapping[str, Json], *, n_steps: int = 0) -> "SpaceModel":
        """Return the model that starts from the hyper-parameters in a sampler's memory, if any.

        Args:
            memory: Memory of a ``SearchState``.
            n_steps: Optimizer iterations from there.
        """
        kept = memory.get(MEMORY_KEY)
        if not isinstance(kept, list):
            return self
        start = tuple(float(value) for value in kept if isinstance(value, int | float))
        return replace(self, start=start, start_steps=n_steps)

    def fit(
        self,
        archive: Archive,
        *,
        case_ids: Sequence[str] | None = None,
        case_weights: Mapping[str, float] | None = None,
    ) -> "FittedSpaceModel":
        """Fit an archive; reuses one of the last fits if its inputs are the same.

        Args:
            archive: Evidence of the run.
            case_ids: Cases in the mean; ``None`` means those with a weight or a reward.
            case_weights: Case → positive weight; missing cases have weight 1.
        """
        if case_ids is not None and case_weights and set(case_ids) == case_weights.keys():
            case_ids = None
        cases = None if case_ids is None else tuple(case_ids)
        inputs = (self, cases, dict(case_weights or {}))
        last = _LAST["fits"]
        for known_archive, known_inputs, fitted in last:
            if known_archive is archive and known_inputs == inputs:
                return fitted
        fitted = FittedSpaceModel(model=self, learned=self._fit(archive, *inputs[1:]))
        _LAST["fits"] = ((archive, inputs, fitted), *last[: N_FITS - 1])
        return fitted

    def _fit(
        self,
        archive: Archive,
        case_ids: tuple[str, ...] | None,
        case_weights: dict[str, float],
    ) -> "FittedEvidence | None":
        members = self._rows(archive, case_ids)
        if not members:
            return None
        kept = Archive({member.candidate.candidate_id: member for member in members})
        evidence = Evidence.gather(kept, case_ids=case_ids, case_weights=case_weights)
        points = self.encoding.encode(
            [kept.members[name].candidate.params for name in evidence.ids]
        )
        warped, process, hides_own = self._fitted_process(evidence, points)
        log_params, agreement = process.log_params, None
        earlier = newest_within(self.earlier, self.max_rows - len(points))
        if earlier:
            process, agreement = with_prior_runs(
                process, warped.targets, warped.errors, warped.warp, earlier
            )
        return FittedEvidence(
            process=process,
            log_params=log_params,
            agreement=agreement,
            warp=warped.warp,
            effects=warped.effects,
            evidence=evidence,
            row={name: i for i, name in enumerate(evidence.ids)},
            hides_own=hides_own,
        )

    def estimate_effects(self, evidence: Evidence) -> CaseEffects:
        """Return the estimates per candidate; benchmarks override it."""
        return CaseEffects.estimate(evidence)

    def _fitted_process(
        self, evidence: Evidence, points: Points
    ) -> tuple[WarpedEvidence, GaussianProcess, bool]:
        """Return the evidence, its fitted process, and ``FittedEvidence.hides_own``."""
        effects = self.estimate_effects(evidence)
        # With several cases, their common luck is noise of a mean over few of them.
        is_single = not effects.is_measured and len(evidence.case_ids) == 1
        is_exact = is_single and (self.deterministic or evidence.is_exact)
        repeats = self._repeats(effects, evidence) if is_single and not is_exact else None
        tells_noise = effects.is_measured or is_exact or repeats is not None
        has_own = tells_noise or not self.encoding.number_names
        kernel = Kernel.of(self.encoding, has_nugget=has_own)
        noise = MEASURED_NOISE if effects.is_measured else NO_NOISE if is_exact else FREE_NOISE
        start = None
        if self.start is not None and len(self.start) == len(kernel.prior_mean) + 1:
            start = np.array(self.start, dtype=np.float64)
        if self.deterministic:
            effects = effects.without_noise(evidence)
        warped = WarpedEvidence.of(effects, self.bounds)
        process = GaussianProcess.fit(
            kernel,
            points,
            warped.targets,
            warped.errors,
            noise=noise,
            repeats=repeats,
            start=start,
            n_steps=N_STEPS if start is None else self.start_steps,
        )
        return warped, process, is_single and not has_own

    def with_own_effects(self, learned: "FittedEvidence") -> GaussianProcess:
        """Return the process fitted again with individual effects of candidates.

        Repeats separate them from noise; without repeats, their variance is the prior's median.
        """
        kernel = Kernel.of(self.encoding, has_nugget=True)
        warped = WarpedEvidence.of(learned.effects, self.bounds)
        repeats = repeats_of(warped, learned.evidence)
        start = learned.log_params.copy()
        start[-2] = kernel.prior_mean[-1]
        process = GaussianProcess.fit(
            kernel,
            learned.process.points.take(np.arange(len(warped.targets))),
            warped.targets,
            warped.errors,
            noise=FREE_NOISE,
            repeats=repeats,
            start=start,
            n_steps=N_OWN_STEPS if repeats else 0,
        )
        if learned.agreement is not None:
            earlier = newest_within(self.earlier, self.max_rows - len(warped.targets))
            process, _ = with_prior_runs(
                process, warped.targets, warped.errors, warped.warp, earlier
            )
        return process

    def _repeats(self, effects: CaseEffects, evidence: Evidence) -> Repeats | None:
        """Return the repeats of the only case; ``None`` if they do not determine the noise.

        In an infinite space, individual effects are separated from noise only if the noise is
        surely small. Otherwise luck would count as merit, and lucky candidates would get the
        cells. With few levels of reward, repeats agree without showing how often they would not.
        """
        repeats = repeats_of(WarpedEvidence.of(effects, self.bounds), evidence)
        if repeats is None or not evidence.is_graded:
            return None
        is_finite = self.space.size() is not None
        return repeats if is_finite or repeats.highest(SURELY) < QUIET else None

    def _rows(self, archive: Archive, case_ids: Sequence[str] | None) -> list[Member]:
        """Return the members in the training data, in order of first evaluation."""
        wanted = None if case_ids is None else set(case_ids)
        sums = []  # (member, number of rewards, their sum)
        for member in archive:
            n, total = member.n, member.total
            if wanted is not None and not member.case_ids <= wanted:
                rewards = [r for (c, _), r in member.rewards.items() if c in wanted]
                n, total = len(rewards), sum(rewards)
            if n:
                sums.append((member, n, total))
        members = [member for member, _, _ in sums]
        if len(members) <= self.max_rows:
            return members
        count = np.array([n for _, n, _ in sums], dtype=np.float64)
        mean = np.array([total for _, _, total in sums]) / count
        shrunk = (mean * count + mean.mean()) / (count + 1.0)
        quarter = self.max_rows // 4
        best = np.argsort(-shrunk, kind="stable")[: self.max_rows - 2 * quarter]
        newest = np.arange(len(members) - quarter, len(members))
        spread = np.linspace(0, len(members) - 1, quarter).round().astype(np.intp)
        return [members[i] for i in np.unique(np.concatenate([best, newest, spread]))]


_FitInputs: TypeAlias = tuple[SpaceModel, tuple[str, ...] | None, dict[str, float]]
"""Model, cases and case weights: all inputs of a fit except the archive."""
_LAST: Final[dict[str, tuple[tuple[Archive, _FitInputs, "FittedSpaceModel"], ...]]] = {"fits": ()}
"""Last fits, replaced as a whole: a race between threads only causes another fit."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedEvidence:
    """Evidence of an archive with the process fitted to it."""

    process: GaussianProcess
    log_params: np.ndarray
    """Hyper-parameters fitted to this run alone."""
    agreement: tuple[float, ...] | None
    """Expected rho of each prior run, 0 if ignored; ``None`` if no prior run fits next to this
    run's candidates."""
    warp: Warp
    effects: CaseEffects
    evidence: Evidence
    row: Mapping[str, int]
    """Candidate → training row."""
    hides_own: bool
    """Whether the process counts candidates' individual effects as noise."""


def repeats_of(warped: WarpedEvidence, evidence: Evidence) -> Repeats | None:
    """Return the repeats of a single case in units of the targets; ``None`` without repeats."""
    if not evidence.repeat_dof:
        return None
    slope = warped.warp.slope(warped.effects.mean)
    return Repeats(square=float(slope**2 @ evidence.repeat_squares), dof=evidence.repeat_dof)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedSpaceModel:
    """Fitted surrogate; ``learned`` is ``None`` without any reward."""

    model: SpaceModel
    learned: FittedEvidence | None

    @property
    def log_params(self) -> np.ndarray | None:
        """Log hyper-parameters, the starting point of the next fit."""
        return None if self.learned is None else self.learned.log_params

    @property
    def case_ids(self) -> tuple[str, ...]:
        """Cases in the mean; empty without any reward."""
        return () if self.learned is None else self.learned.evidence.case_ids

    @property
    def is_exact(self) -> bool:
        """Whether repeats have no noise, by setting or shown by repeats of the only case."""
        if self.model.deterministic:
            return True
        return len(self.case_ids) == 1 and bool(self.learned and self.learned.evidence.is_exact)

    @property
    def cells_worth_the_prior(self) -> float | None:
        """Cells whose noise equals the variance of a new candidate; ``None`` if unknown.

        So many cells halve that variance. Noise and merit need measured errors to be separable.
        """
        learned = self.learned
        if learned is None or not learned.effects.is_measured:
            return None
        slope = learned.warp.slope(learned.effects.mean)
        of_cell = float(np.median(learned.effects.noise * slope**2)) * learned.process.noise
        return of_cell / learned.process.prior_variance

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Return the training row of each candidate, -1 if there is none, (n,)."""
        row = {} if self.learned is None else self.learned.row
        return np.array([row.get(name, -1) for name in ids], dtype=np.intp)

    def posterior(self, candidates: Sequence[Candidate]) -> WarpedPosterior:
        """Return the joint posterior of these candidates, evaluated or new."""
        return self.posterior_at(*self._places(candidates))

    def claimed(self, candidates: Sequence[Candidate]) -> tuple[WarpedPosterior, np.ndarray]:
        """Return the posterior behind claims, and factors that widen its intervals.

        Each candidate has an individual effect there, even if the search counts it as noise. The
        factors, at least 1, (n,), account for uncertain hyper-parameters.
        """
        posterior = self.posterior(candidates)
        points = posterior.points
        if self.learned is None or points is None:
            return posterior, np.ones(len(candidates))
        process = self.learned.process
        if self.learned.hides_own:
            process = self.model.with_own_effects(self.learned)
            posterior = replace(posterior, process=process)
        total = process.total_variance(points, posterior.rows)
        return posterior, np.asarray(np.sqrt(total) / posterior.marginals[1], np.float64)

    def as_recorded(self) -> "FittedSpaceModel | None":
        """Return the fit if cases reproduce their rewards; ``None`` if it changes nothing.

        One answer per case cannot show whether the next one would differ. If it would not, a mean
        over all cases has no error.
        """
        learned = self.learned
        if learned is None or self.model.deterministic or not learned.effects.is_measured:
            return None
        if not learned.evidence.repeats_agree:
            return None
        effects = learned.effects.without_noise(learned.evidence)
        less = np.diag(effects.errors) - np.diag(learned.effects.errors)
        process = learned.process.with_errors(less * learned.warp.slope(effects.mean) ** 2)
        return replace(self, learned=replace(learned, effects=effects, process=process))

    def worth(self, candidates: Sequence[Candidate]) -> WarpedPosterior:
        """Return the joint posterior of these candidates' values; see ``worth_at``."""
        return self.worth_at(*self._places(candidates))

    def _places(
        self, candidates: Sequence[Candidate]
    ) -> tuple[tuple[str, ...], Points, np.ndarray]:
        """Return the ids, points and training rows of candidates."""
        ids = tuple(candidate.candidate_id for candidate in candidates)
        points = self.model.encoding.encode([candidate.params for candidate in candidates])
        return ids, points, self.rows(ids)

    def worth_at(self, ids: tuple[str, ...], points: Points, rows: np.ndarray) -> WarpedPosterior:
        """Return the joint posterior of rewards minus the price of prompts.

        Args:
            ids: See ``posterior_at``.
            points: Points of the candidates.
            rows: See ``posterior_at``.
        """
        posterior, price = self.posterior_at(ids, points, rows), self.model.price
        if price is None:
            return posterior
        return posterior.less(price.of_points(self.model.encoding, points))

    def posterior_at(
        self, ids: tuple[str, ...], points: Points, rows: np.ndarray
    ) -> WarpedPosterior:
        """Return the joint posterior of n candidates at these points.

        Args:
            ids: Candidate ids.
            points: Points of the candidates.
            rows: Training row of each candidate, -1 if unseen, (n,).
        """
        if self.learned is None:
            return WarpedPosterior.of_nothing(ids, self.model.bounds)
        return WarpedPosterior(
            ids=ids,
            process=self.learned.process,
            warp=self.learned.warp,
            points=points,
            rows=rows,
            bounds=self.model.bounds,
        )
