"""The surrogate of the search: a Gaussian process over the space, on evidence freed of the cases.

Cells become one measurement per candidate (``case_effects``), whose errors know what candidates of a
kind share (``interaction``); rewards are warped so that crashes do not bend the surface
(``warping``), and a process over the space (``gaussian_process``) says what is believed of
candidates asked and unasked, jointly. Then the evidence is read again by what is believed
(``reading``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from convergence_core.posterior.case_effects import CaseEffects
from convergence_core.posterior.evidence import Evidence
from convergence_core.posterior.gaussian_process import GaussianProcess, Repeats
from convergence_core.posterior.interaction import SharedNoise, without_noise
from convergence_core.posterior.kernel import Distances, Layout
from convergence_core.posterior.prior_runs import (
    EarlierRun,
    RunAgreement,
    newest_within,
    with_earlier,
)
from convergence_core.posterior.warp import Warp
from convergence_core.posterior.warped_evidence import Reading
from convergence_core.posterior.warped_posterior import WarpedBeliefs
from convergence_core.records import Candidate, Json
from convergence_core.search.archive import Archive, Member
from convergence_core.space import Space
from convergence_core.space.encoding import Encoding, Points

MAX_ROWS = 300
"""Candidates that a process is trained on: its cost grows with their cube."""
QUIET = 0.02
"""Variance of the noise, in units of that of candidates' rewards, below which it is small."""
SURELY = 0.999
"""Confidence that it is."""
N_READINGS = 3
"""Readings of the evidence where the noise is measured; a fourth changes little."""
MEMORY_KEY = "log_params"
"""Where a sampler's memory keeps the hyper-parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceModel:
    """Settings of the surrogate."""

    space: Space
    max_rows: int = MAX_ROWS
    """Of more candidates, the best half, the newest quarter and a spread quarter are kept."""
    bounds: tuple[float, float] | None = (0.0, 1.0)
    """Where rewards lie; ``None``: anywhere."""
    n_steps: int = 25
    """Iterations of the optimizer of hyper-parameters."""
    additive: bool = False
    """``True``: additive terms where a choice has many values; they were not shown to help."""
    case_effects: bool = True
    """``False``: all cases count as equally hard; to show what knowing them is worth."""
    item_response: bool = True
    """``False``: pass and fail are read as other rewards are; to show what knowing abilities is worth."""
    interaction: bool = True
    """``False``: no luck is shared by similar candidates; to show what knowing it is worth."""
    n_readings: int = N_READINGS
    """How often evidence is read; 1: only where it was measured, to show what more are worth."""
    deterministic: bool = False
    """Whether a case that is asked again gets the same reward."""
    earlier: tuple[EarlierRun, ...] = ()
    """Earlier runs of the same system, believed as far as they agree with this one."""
    start: tuple[float, ...] | None = None
    """Log hyper-parameters of an earlier fit to begin at; ``None``: the prior's medians."""
    start_steps: int | None = None
    """Iterations from there; ``None``: as many as from the prior."""
    encoding: Encoding = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Encode the space once."""
        object.__setattr__(self, "encoding", Encoding.of(self.space))

    def believing(self, earlier: Sequence[EarlierRun]) -> "SpaceModel":
        """Return the model that also believes these earlier runs, as far as they agree."""
        return replace(self, earlier=tuple(earlier))

    def warm(self, memory: Mapping[str, Json], *, n_steps: int = 0) -> "SpaceModel":
        """Return the model that begins where a sampler's memory says, if it says so.

        Args:
            memory: of a ``SearchState``.
            n_steps: iterations from there.
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
        """Learn from an archive; see ``Surrogate.fit``.

        Asked the same of the same archive again, as a generation that thinks does, it answers what
        it answered last.
        """
        asked = FitInputs(
            model=self,
            archive=archive,
            case_ids=None if case_ids is None else tuple(case_ids),
            case_weights=dict(case_weights or {}),
        )
        last = _LAST.get("fit")
        if last is not None and last[0].is_same(asked):
            return last[1]
        fitted = self._fit(archive, case_ids=case_ids, case_weights=case_weights)
        _LAST["fit"] = asked, fitted
        return fitted

    def _fit(
        self,
        archive: Archive,
        *,
        case_ids: Sequence[str] | None,
        case_weights: Mapping[str, float] | None,
    ) -> "FittedSpaceModel":
        members = self._rows(archive, case_ids)
        if not members:
            return FittedSpaceModel(model=self, learned=None)
        kept = Archive({member.candidate.candidate_id: member for member in members})
        evidence = Evidence.gather(kept, case_ids=case_ids, case_weights=case_weights)
        places = self.encoding.encode(
            [kept.members[name].candidate.params for name in evidence.ids]
        )
        reading, process = self._read(evidence, places)
        log_params, agreement = process.log_params, None
        earlier = newest_within(self.earlier, self.max_rows - len(places))
        if earlier:
            process, agreement = with_earlier(
                process, reading.targets, reading.errors, reading.warp, earlier
            )
        return FittedSpaceModel(
            model=self,
            learned=FittedEvidence(
                process=process,
                log_params=log_params,
                agreement=agreement,
                warp=reading.warp,
                effects=reading.effects,
                evidence=evidence,
                row={name: i for i, name in enumerate(evidence.ids)},
            ),
        )

    def _read(self, evidence: Evidence, places: Points) -> tuple[Reading, GaussianProcess]:
        """Return the evidence as it was read last, and the process fitted to it.

        Where cells tell the noise, it is read again where the posterior lies, see ``reading``.
        """
        effects = CaseEffects.estimate(
            evidence, with_cases=self.case_effects, with_items=self.item_response
        )
        # Of several cases, what they have in common is noise to a mean over few of them.
        is_single = not effects.is_measured and len(evidence.case_ids) == 1
        is_exact = is_single and (self.deterministic or evidence.is_exact)
        repeats = self._repeats(effects, evidence) if is_single and not is_exact else None
        tells_noise = effects.is_measured or is_exact or repeats is not None
        layout = Layout.of(
            self.encoding,
            own_effect=tells_noise or not self.encoding.number_names,
            additive=self.additive,
        )
        interaction = None
        if self.interaction and effects.is_measured:
            distances = Distances.between(places, places, self.encoding.distances)
            interaction = SharedNoise.estimate(effects, layout, distances)
        start = None
        if self.start is not None and len(self.start) == layout.size + 1:
            start = np.array(self.start, dtype=np.float64)
        reading = Reading.of(
            _applied(interaction, effects, deterministic=self.deterministic), self.bounds
        )
        process = self._process(reading, layout, places, start, repeats=repeats, is_exact=is_exact)
        tells = effects.is_measured and np.ptp(reading.targets) > 0
        for _ in range(self.n_readings - 1 if tells else 0):
            believed = WarpedBeliefs(
                ids=evidence.ids,
                process=process,
                warp=reading.warp,
                places=places,
                rows=np.arange(len(places)),
                bounds=self.bounds,
            )
            again = effects.believing(evidence, believed.mean, with_cases=self.case_effects)
            reading = Reading.of(
                _applied(interaction, again, deterministic=self.deterministic),
                self.bounds,
                believed,
            )
            process = self._process(reading, layout, places, process.log_params)
        return reading, process

    def _repeats(self, effects: CaseEffects, evidence: Evidence) -> Repeats | None:
        """Return what repeats of the only case say of the noise; ``None``: nothing worth knowing.

        Among numbers that vary freely it is told from a candidate's own effect only where it is shown
        to be small: otherwise luck becomes merit, and places go to those who had it. Rewards of few
        levels agree without saying how often they would not.
        """
        if not evidence.repeat_dof or not evidence.is_graded:
            return None
        slope = Reading.of(effects, self.bounds).warp.slope(effects.mean)
        found = Repeats(square=float(slope**2 @ evidence.repeat_squares), dof=evidence.repeat_dof)
        is_finite = self.space.size() is not None
        return found if is_finite or found.highest(SURELY) < QUIET else None

    def _process(
        self,
        reading: Reading,
        layout: Layout,
        places: Points,
        start: np.ndarray | None,
        *,
        repeats: Repeats | None = None,
        is_exact: bool = False,
    ) -> GaussianProcess:
        n_steps = None if start is None else self.start_steps
        return GaussianProcess.fit(
            layout,
            self.encoding.distances,
            places,
            reading.targets,
            reading.errors,
            known_noise=reading.effects.is_measured,
            repeats=repeats,
            is_exact=is_exact,
            start=start,
            n_steps=self.n_steps if n_steps is None else n_steps,
        )

    def _rows(self, archive: Archive, case_ids: Sequence[str] | None) -> list[Member]:
        """Return the members to train on, in the order they were first asked."""
        wanted = None if case_ids is None else set(case_ids)
        seen = [
            (member, [r for (c, _), r in member.rewards.items() if wanted is None or c in wanted])
            for member in archive
        ]
        members = [member for member, rewards in seen if rewards]
        if len(members) <= self.max_rows:
            return members
        count = np.array([len(rewards) for _, rewards in seen if rewards], dtype=np.float64)
        reward = np.array([sum(rewards) for _, rewards in seen if rewards]) / count
        shrunk = (reward * count + reward.mean()) / (count + 1.0)
        quarter = self.max_rows // 4
        best = np.argsort(-shrunk, kind="stable")[: self.max_rows - 2 * quarter]
        newest = np.arange(len(members) - quarter, len(members))
        spread = np.linspace(0, len(members) - 1, quarter).round().astype(np.intp)
        return [members[i] for i in np.unique(np.concatenate([best, newest, spread]))]


def _applied(
    interaction: SharedNoise | None, effects: CaseEffects, *, deterministic: bool
) -> CaseEffects:
    if deterministic:
        return without_noise(effects, interaction)
    return effects if interaction is None else interaction.applied(effects)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FitInputs:
    """All that a fit depends on."""

    model: SpaceModel
    archive: Archive
    case_ids: tuple[str, ...] | None
    case_weights: dict[str, float]

    def is_same(self, other: "FitInputs") -> bool:
        """Whether both are of one archive and ask alike; archives are values that nobody changes."""
        return (
            self.archive is other.archive
            and self.case_ids == other.case_ids
            and self.case_weights == other.case_weights
            and self.model == other.model
        )


_LAST: Final[dict[str, tuple[FitInputs, "FittedSpaceModel"]]] = {}
"""The last fit alone, replaced whole: threads may lose it to each other, and then fit again."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedEvidence:
    """What evidence said."""

    process: GaussianProcess
    log_params: np.ndarray
    """Hyper-parameters that fit this run alone."""
    agreement: RunAgreement | None
    """With the earlier runs; ``None``: none, or none fits beside this run's candidates."""
    warp: Warp
    effects: CaseEffects
    evidence: Evidence
    row: Mapping[str, int]
    """Candidate → training row."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FittedSpaceModel:
    """The model with what it learned; ``None``: there was no reward."""

    model: SpaceModel
    learned: FittedEvidence | None

    @property
    def log_params(self) -> np.ndarray | None:
        """Log hyper-parameters, for the next fit to begin at."""
        return None if self.learned is None else self.learned.log_params

    @property
    def case_ids(self) -> tuple[str, ...]:
        """Cases whose mean counts; none where there was no reward."""
        return () if self.learned is None else self.learned.evidence.case_ids

    @property
    def is_exact(self) -> bool:
        """Whether asking a case again would tell nothing: said so, or shown by repeats of the only case."""
        if self.model.deterministic:
            return True
        evidence = None if self.learned is None else self.learned.evidence
        return evidence is not None and len(evidence.case_ids) == 1 and evidence.is_exact

    @property
    def cells_worth_the_prior(self) -> float | None:
        """Cells whose noise equals what is unknown of a candidate nobody asked; ``None``: unknown.

        So many leave half of that variance. It takes cells to tell noise from merit.
        """
        learned = self.learned
        if learned is None or not learned.effects.is_measured:
            return None
        slope = learned.warp.slope(learned.effects.mean)
        of_cell = float(np.median(learned.effects.noise * slope**2)) * learned.process.noise
        return of_cell / learned.process.prior_variance

    def rows(self, ids: Sequence[str]) -> np.ndarray:
        """Return which training row each candidate is, -1 for none, (n,)."""
        row = {} if self.learned is None else self.learned.row
        return np.array([row.get(name, -1) for name in ids], dtype=np.intp)

    def posterior(self, candidates: Sequence[Candidate]) -> WarpedBeliefs:
        """Return the joint posterior of these candidates, seen or unseen."""
        ids = tuple(candidate.candidate_id for candidate in candidates)
        places = self.model.encoding.encode([candidate.params for candidate in candidates])
        return self.beliefs(ids, places, self.rows(ids))

    def beliefs(self, ids: tuple[str, ...], places: Points, rows: np.ndarray) -> WarpedBeliefs:
        """Return the joint posterior of candidates at these places.

        Args:
            ids: of the candidates.
            places: of the candidates.
            rows: which training row each is, -1 for unseen ones, (n,).
        """
        if self.learned is None:
            return WarpedBeliefs.of_nothing(ids, self.model.bounds)
        return WarpedBeliefs(
            ids=ids,
            process=self.learned.process,
            warp=self.learned.warp,
            places=places,
            rows=rows,
            bounds=self.model.bounds,
        )
