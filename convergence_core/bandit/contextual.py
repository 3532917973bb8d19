"""Contextual arms: regressions of rewards on features and users.

For the request x of user u, arm k earns

    r = x . w_k + v_uk + e,    e ~ N(0, s)                                                         (1)
    w_k ~ N(m_k e_0, s diag(t)),    v_uk ~ N(0, s t_users),    s ~ inverse gamma(SHAPE, SCALE)     (2)

and is chosen with the probability that its expected reward is the highest (S. Agrawal, N. Goyal,
"Thompson sampling for contextual bandits with linear payoffs", 2013, Alg. 1). v is the random
intercept of a mixed model: the rewards determine how strongly users are pooled.

*Posterior.* A user's requests involve no other user's intercept, so the intercepts can be
eliminated (C. R. Henderson, "Best linear unbiased estimation and prediction under a selection
model", 1975). With ``G = sum x x^T``, ``g = sum r x``, and of user u the number n_u, ``c_u = sum
x`` and ``h_u = sum r``, each arm has

    A = diag(1 / t) + G - sum_u k_u c_u c_u^T,    k_u = 1 / (n_u + 1 / t_users)                    (3)
    b = m e_0 / t_0 + g - sum_u k_u h_u c_u,    w = A^-1 b                                         (4)
    x . w + k_u (h_u - c_u . w),    s (k_u + z^T A^-1 z),    z = x - k_u c_u                       (5)

(5) is the mean and variance of the arm's expected reward for x and u. A user without rewards is
like the average.

*Evidence.* The variance s integrates out, over the n rewards of all arms (K. P. Murphy, "Machine
learning: a probabilistic perspective", 2012, eqs. 7.70 to 7.74, applied to (3) and (4)); up to a
constant

    log p(r) = sum_k [log |diag(1 / t)| - log |A| - sum_u log(1 + t_users n_u)] / 2 - a log q      (6)
    a = SHAPE + n / 2,    q = SCALE + sum_k [sum r^2 + m^2 / t_0 - sum_u k_u h_u^2 - w . b] / 2    (7)

The variances t of arms, features, pairs and users climb (6) on the grid ``TAUS``. Four sizes of
the model run side by side: with and without pairs of features, with and without users; with a
night, eight. Each is drawn with its posterior probability. A priori sizes with P pairs have the
odds 1 / (1 + P), those with users ``USER_ODDS``. s is q / a.

*The night* has rewards r' of every arm for cases x', not for requests. They are a power prior (J.
G. Ibrahim, M.-H. Chen, "Power prior distributions for regression models", 2000). The requests'
rewards also choose its exponent t_night on the grid ``TAUS``. With G' and g' as G and g, over
cases, (2) becomes

    w_k ~ N(A_0^-1 b_0, s A_0^-1),    A_0 = diag(1 / t) + t_night G',    b_0 = m e_0 / t_0 + t_night g'     (8)

so that A_0, b_0 and b_0 . A_0^-1 b_0 replace the prior's terms in (3), (4) and (7). Cases provide
no evidence on s, users or pairs. Sizes with and without the night compete, equally likely before
any reward. So rewards that contradict a misleading night remove it quickly.

*Departure.* The standard deviation of (5) is multiplied by ``SHARPNESS``: within some thousand
requests the full posterior explores too much (O. Chapelle, L. Li, "An empirical evaluation of
Thompson sampling", 2011, sec. 5, whose best factors are 0.25 and 0.5).

*Features* are those of ``features``. With more than ``MOST_USERS`` users, the one with the oldest
last reward becomes like the average again.

Each growth of the rewards by ``GROWTH`` triggers a refit; (5) includes a user's rewards
immediately.
"""

import math
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, Final, Self
from zlib import compress, decompress

import numpy as np
from numpy.typing import ArrayLike

from convergence_core.bandit.features import Feature, Ints, Places
from convergence_core.bandit.propensities import Floats, of_gaussian
from convergence_core.records import Json

VERSION: Final = 3
"""Version of the state; version 2 had no night."""
SHAPE: Final = 1.0
SCALE: Final = 0.1
SHARPNESS: Final = 0.5
USER_ODDS: Final = math.e
MOST_USERS: Final = 512
TAUS: Final = np.array([0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0])
START: Final = {"arms": 5, "features": 4, "pairs": 3, "users": 5, "night": 6}
"""Initial index of each variance in ``TAUS``."""
_OPTIONAL: Final = ("pairs", "users", "night")
"""Optional parts of the model."""
STEP_COST: Final = 0.1
"""Loss of log prior per squared number of steps from ``START``."""
HOPELESS: Final = 10.0
"""Deficit of log evidence at which a size does not climb."""
NEGLIGIBLE: Final = 0.05
"""Minimum probability of a size that is drawn."""
GROWTH: Final = 0.05
"""Growth of the rewards that triggers a refit, as a share."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextPosterior:
    """Posterior of each arm's expected reward for one request, a mixture over sizes."""

    probabilities: Floats
    """Probabilities of the sizes, (n_sizes,)."""
    means: Floats
    """Means, (n_sizes, n_arms)."""
    sds: Floats
    """Standard deviations, (n_sizes, n_arms)."""

    def of(self, arms: Sequence[int]) -> Self:
        """Return the posterior of these arms."""
        means, sds = self.means[:, arms], self.sds[:, arms]
        return type(self)(probabilities=self.probabilities, means=means, sds=sds)

    @property
    def propensities(self) -> Floats:
        """Each arm's probability of the highest draw, (n_arms,)."""
        each = [of_gaussian(m, sd) for m, sd in zip(self.means, self.sds, strict=True)]
        return np.asarray(self.probabilities @ np.array(each))

    @property
    def mean_sd(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the mixture, (n_arms,) each."""
        mean = self.probabilities @ self.means
        square = self.probabilities @ (self.sds**2 + self.means**2)
        return mean, np.sqrt(np.maximum(square - mean**2, 0.0))


class Sums:
    """Sums over the rewards of each arm; user rows are allocated in advance."""

    def __init__(self, n_arms: int, d: int = 1, n_users: int = 0) -> None:
        """Create sums without rewards."""
        self.gram: Floats = np.zeros((n_arms, d, d))
        """G, (n_arms, d, d)."""
        self.cross: Floats = np.zeros((n_arms, d))
        """g, (n_arms, d)."""
        self.squares: Floats = np.zeros(n_arms)
        """Sums of squared rewards, (n_arms,)."""
        self.n: Floats = np.zeros(n_arms)
        """Numbers of rewards, (n_arms,)."""
        self.user_x: Floats = np.zeros((n_arms, n_users, d))
        """c, (n_arms, n_users, d)."""
        self.user_cross: Floats = np.zeros((n_arms, n_users))
        """h, (n_arms, n_users)."""
        self.user_n: Floats = np.zeros((n_arms, n_users))
        """n_u, (n_arms, n_users)."""

    def to_json(self) -> dict[str, Json]:
        """Return the packed arrays."""
        return {name: _packed(array) for name, array in vars(self).items()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the sums from ``to_json``."""
        sums = cls(0)
        for name, packed in value.items():
            setattr(sums, name, _unpacked(packed))
        return sums

    def widened(self, *, n_arms: int = 0, d: int = 0, n_users: int = 0) -> Self:
        """Return the sums with additional arms, coordinates and user rows."""
        (k, u, c) = self.user_x.shape
        wide = type(self)(k + n_arms, c + d, u + n_users)
        for name, old in vars(self).items():
            getattr(wide, name)[tuple(map(slice, old.shape))] = old
        return wide

    def map(self, matrix: Floats) -> None:
        """Transform to other coordinates."""
        self.gram = matrix @ self.gram @ matrix.T
        self.cross = self.cross @ matrix.T
        self.user_x = self.user_x @ matrix.T


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fit:
    """Posterior under one size of the model and its variances t."""

    log_evidence: float
    """Log evidence, including the log prior of the variances."""
    kept: Ints
    """Coordinates of this size, (d,)."""
    precision: Floats
    """A, (n_arms, d, d)."""
    weights: Floats
    """w, (n_arms, d)."""
    variance: float
    """s."""
    tau_users: float
    """Variance t of users; 0 without users."""


class ContextualArms:
    """Arms whose reward depends on features and user; ``tell`` changes them in place.

    arms = ContextualArms([math.nan, math.nan], [1.0, 1.0])
    shares = arms.posterior({"language": "de", "length": 120}, "u1").propensities
    arms.tell(0, 1.0, {"language": "de", "length": 120}, "u1")
    """

    def __init__(
        self,
        prior_means: ArrayLike,
        prior_weights: ArrayLike,
        night: "ContextualArms | None" = None,
    ) -> None:
        """Create arms without rewards.

        Args:
            prior_means: Expected reward of the average request, (n_arms,). NaN means unknown. Such
                arms share the mean of all rewards, as strongly as the rewards show that arms are
                alike.
            prior_weights: Weight of each known mean in rewards, (n_arms,), positive.
            night: Result of ``of_table`` for the first arms; ``None`` without a night.

        Raises:
            ValueError: A weight is not positive, or the shapes differ.
        """
        self._prior_means = np.asarray(prior_means, dtype=np.float64)
        self._prior_weights = np.asarray(prior_weights, dtype=np.float64)
        if self._prior_means.shape != self._prior_weights.shape or not np.all(
            self._prior_weights > 0.0
        ):
            raise ValueError("each arm must have a prior mean and a positive prior weight")
        self._places, self._sums = Places(), Sums(self._prior_means.size)
        self._users: dict[str, int] = {}  # user → row, the user with the oldest last reward first
        self._sizes = [
            {group: START[group] for group in ("arms", "features", *groups)}
            for groups in map(chain.from_iterable, product(*(((), (g,)) for g in _OPTIONAL)))
        ]
        self._night: Sums | None = None
        self._night_start: Mapping[str, int] = START
        if night is not None:
            self._begin_after(night)
        self._n_fits, self._n_fitted = 0, 0.0
        self._choose([self._fit(levels) for levels in self._possible()])

    @classmethod
    def of_table(cls, contexts: Sequence[Mapping[str, Feature]], rewards: Floats) -> Self:
        """Return arms fitted to a run's table, without pairs and users.

        Args:
            contexts: Features of the n cases.
            rewards: Rewards by case and arm, (n, n_arms); NaN if the arm has no answer.
        """
        n_arms = rewards.shape[1]
        arms = cls(np.full(n_arms, math.nan), np.ones(n_arms))
        places = arms._places
        for context in contexts:
            places.add(context)
        places.move()
        x = np.array([places.encode(context) for context in contexts]) * (places.right == 0)
        known = np.isfinite(rewards)
        filled = np.where(known, rewards, 0.0)
        arms._sums = Sums(n_arms, x.shape[1])
        arms._sums.gram = np.array([x.T @ (x * column[:, None]) for column in known.T])
        arms._sums.cross, arms._sums.squares = filled.T @ x, (filled**2).sum(axis=0)
        arms._sums.n = known.sum(axis=0).astype(np.float64)
        arms._sizes = arms._sizes[:1]
        (levels,), n_still = arms._sizes, 0
        while n_still < len(levels):
            before = dict(levels)
            arms._refit()
            n_still = 0 if levels != before else n_still + 1
        return arms

    def _begin_after(self, night: "ContextualArms") -> None:
        self._places = night._places
        n_more = self._prior_means.size - night._prior_means.size
        self._night = night._sums.widened(n_arms=n_more)
        self._sums = Sums(self._prior_means.size, night._places.left.size)
        self._night_start = {**START, **night._sizes[0]}
        for levels in self._sizes:
            if "night" in levels:
                levels.update(night._sizes[0])

    def placed(self, rows: Sequence[int | None]) -> Self:
        """Return a night's arms in another order; ``None`` adds an unknown arm."""
        arms = type(self)(np.full(len(rows), math.nan), np.ones(len(rows)))
        arms._places, arms._sizes = self._places, self._sizes
        arms._sums = Sums(len(rows), self._places.left.size)
        for k, row in enumerate(rows):
            if row is not None:
                for name in ("gram", "cross", "squares", "n"):
                    getattr(arms._sums, name)[k] = getattr(self._sums, name)[row]
        arms._choose([arms._fit(levels) for levels in arms._possible()])
        return arms

    @property
    def n(self) -> int:
        """Number of rewards."""
        return int(self._sums.n.sum())

    @property
    def is_fitted(self) -> bool:
        """Whether the fit includes all rewards."""
        return self.n == self._n_fitted

    def tell(
        self, arm: int, reward: float, context: Mapping[str, Feature], user: str | None = None
    ) -> None:
        """Learn a finite reward of a request."""
        self._places.add(context)
        if more := self._places.left.size - self._sums.cross.shape[1]:
            self._sums = self._sums.widened(d=more)
            self._night = None if self._night is None else self._night.widened(d=more)
        x, row = self._places.encode(context), None if user is None else self._row(user)
        sums = self._sums
        sums.gram[arm] += np.multiply.outer(x, x)
        sums.cross[arm] += reward * x
        sums.squares[arm] += reward**2
        sums.n[arm] += 1.0
        if row is not None:
            sums.user_x[arm, row] += x
            sums.user_cross[arm, row] += reward
            sums.user_n[arm, row] += 1.0
        if self.n >= max(self._n_fitted + 1.0, math.ceil(self._n_fitted * (1.0 + GROWTH))):
            self._refit()

    def posterior(
        self, context: Mapping[str, Feature], user: str | None = None
    ) -> ContextPosterior:
        """Return the posterior of all arms for a request."""
        x = self._places.encode(context)
        row = None if user is None else self._users.get(user)
        moments = [self._moments(fit, inverse, x, row) for fit, inverse in self._fits]
        return ContextPosterior(
            probabilities=self._probabilities,
            means=np.array([mean for mean, _ in moments]),
            sds=np.array([sd for _, sd in moments]),
        )

    def _moments(
        self, fit: Fit, inverse: Floats, x: Floats, row: int | None
    ) -> tuple[Floats, Floats]:
        z = x[fit.kept]
        means = fit.weights @ z
        if row is None or not fit.tau_users:
            spread = (inverse @ z) @ z
        else:
            c, h = self._sums.user_x[:, row, fit.kept], self._sums.user_cross[:, row]
            k = 1.0 / (self._sums.user_n[:, row] + 1.0 / fit.tau_users)
            means += k * (h - (c * fit.weights).sum(axis=1))
            zs = z - k[:, None] * c
            spread = k + ((inverse @ zs[:, :, None])[:, :, 0] * zs).sum(axis=1)
        return means, SHARPNESS * np.sqrt(fit.variance * spread)  # (eq. 5)

    def _row(self, user: str) -> int:
        """Return the row of a user and mark the user as the latest."""
        row = self._users.pop(user, len(self._users))
        if row == MOST_USERS:
            row = self._users.pop(next(iter(self._users)))
            for name in ("user_x", "user_cross", "user_n"):
                getattr(self._sums, name)[:, row] = 0.0
        elif row == self._sums.user_n.shape[1]:
            self._sums = self._sums.widened(n_users=max(8, row))
        self._users[user] = row
        return row

    def _possible(self) -> list[dict[str, int]]:
        """Return the sizes whose features, users and night exist."""
        possible = {
            "pairs": self._places.right.any(),
            "users": bool(self._users),
            "night": self._night is not None,
        }
        return [
            levels for levels in self._sizes if all(possible.get(group, True) for group in levels)
        ]

    def _refit(self) -> None:
        """Standardise again, and move one variance of each size a step up the evidence."""
        matrix = self._places.move()
        if matrix is not None:
            self._sums.map(matrix)
            if self._night is not None:  # the night has no pairs
                self._night.map(np.where(self._places.right[:, None] > 0, 0.0, matrix))
        self._n_fitted, self._n_fits = float(self.n), self._n_fits + 1
        fits: list[Fit] = []
        for levels in self._possible():
            fit = self._fit(levels)
            if not fits or fit.log_evidence > fits[0].log_evidence - HOPELESS:
                group = list(levels)[self._n_fits % len(levels)]
                for step in (1, -1):
                    if 0 <= levels[group] + step < TAUS.size:
                        other = self._fit({**levels, group: levels[group] + step})
                        if other.log_evidence > fit.log_evidence:
                            fit, levels[group] = other, levels[group] + step
                            break
            fits.append(fit)
        self._choose(fits)

    def _choose(self, fits: Sequence[Fit]) -> None:
        """Select the likely sizes, with their posterior probabilities."""
        n_pairs = int(np.count_nonzero(self._places.right))
        logs = np.array([fit.log_evidence for fit in fits])
        for i, levels in enumerate(self._possible()):
            logs[i] += math.log(USER_ODDS) * ("users" in levels)
            logs[i] -= math.log1p(n_pairs) * ("pairs" in levels)
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        likely = np.flatnonzero(shares >= NEGLIGIBLE).tolist()
        self._probabilities = shares[likely] / shares[likely].sum()
        inverses = [np.asarray(np.linalg.inv(fits[i].precision), dtype=np.float64) for i in likely]
        self._fits = [(fits[i], inverse) for i, inverse in zip(likely, inverses, strict=True)]

    def _fit(self, levels: Mapping[str, int]) -> Fit:
        """Return the posterior for variances at these levels of ``TAUS``."""
        sums, t = self._sums, {group: float(TAUS[level]) for group, level in levels.items()}
        kept = np.flatnonzero((self._places.right == 0) | ("pairs" in t))
        # Slicing copies several times faster than indexing.
        part = slice(None) if kept.size == self._places.right.size else kept
        precision, b = self._prior(t, part)
        if "night" in t:
            log_det = _log_det(precision)
            expected = np.linalg.solve(precision, b[:, :, None])[:, :, 0]
        else:  # diagonal
            diagonal = np.diagonal(precision, axis1=1, axis2=2)
            log_det, expected = np.log(diagonal).sum(), b / diagonal
        squares = sums.squares.sum() + (expected * b).sum()
        precision += sums.gram[:, part][:, :, part]
        b += sums.cross[:, part]
        if tau_users := t.get("users", 0.0):
            n_u, h = sums.user_n[:, : len(self._users)], sums.user_cross[:, : len(self._users)]
            c, k = sums.user_x[:, : len(self._users)][:, :, part], 1.0 / (n_u + 1.0 / tau_users)
            weighted = (k[:, :, None] * c).transpose(0, 2, 1)
            precision -= weighted @ c  # (eq. 3)
            b -= (weighted @ h[:, :, None])[:, :, 0]  # (eq. 4)
            log_det -= np.log1p(tau_users * n_u).sum()
            squares -= (k * h**2).sum()
        weights = np.asarray(np.linalg.solve(precision, b[:, :, None])[:, :, 0], dtype=np.float64)
        log_det -= _log_det(precision)
        a = SHAPE + sums.n.sum() / 2.0
        q = SCALE + max(0.0, squares - (weights * b).sum()) / 2.0  # (eq. 7)
        begun = self._night_start if "night" in t else START
        steps = sum((level - begun[group]) ** 2 for group, level in levels.items())
        return Fit(
            log_evidence=float(log_det / 2.0 - a * math.log(q)) - STEP_COST * steps,  # (eq. 6)
            kept=kept,
            precision=precision,
            weights=weights,
            variance=q / a,
            tau_users=tau_users,
        )

    def _prior(self, t: Mapping[str, float], part: "Ints | slice") -> tuple[Floats, Floats]:
        """Return A_0 and b_0 for these coordinates, (n_arms, d, d) and (n_arms, d)."""
        cross, n, is_new = (
            self._sums.cross[:, 0].sum(),
            self._sums.n.sum(),
            np.isnan(self._prior_means),
        )
        night = self._night if "night" in t else None
        if night is not None:
            is_new |= night.n > 0.0
            cross, n = cross + t["night"] * night.cross[:, 0].sum(), n + t["night"] * night.n.sum()
        m = np.where(is_new, (0.5 + cross) / (1.0 + n), self._prior_means)
        worth = np.where(is_new, 1.0 / t["arms"], self._prior_weights)  # 1 / t_0
        is_pair = self._places.right[part] > 0
        diagonal = np.where(is_pair, 1.0 / t.get("pairs", 1.0), 1.0 / t["features"])
        precision = np.tile(np.diag(diagonal), (m.size, 1, 1))
        precision[:, 0, 0] = worth
        b = np.zeros((m.size, is_pair.size))
        b[:, 0] = worth * m
        if night is not None:
            precision += t["night"] * night.gram[:, part][:, :, part]
            b += t["night"] * night.cross[:, part]
        return precision, b  # (eq. 8)

    def to_json(self) -> dict[str, Json]:
        """Return the state after a fit; arrays are base64 of zlib of little-endian floats."""
        places, sums = self._places, self._sums
        return {
            "version": VERSION,
            "known": [[name, value, place] for (name, value), place in places.known.items()],
            "rest": dict(places.rest),
            "names": list(places.names),
            "factors": [places.left.tolist(), places.right.tolist()],
            "numbers": _packed(np.vstack((places.moments, places.origin, places.unit))),
            "sums": sums.to_json(),
            "night": None if self._night is None else self._night.to_json(),
            "night_start": dict(self._night_start),
            "users": [[user, row] for user, row in self._users.items()],
            "sizes": [dict(levels) for levels in self._sizes],
            "n_fits": self._n_fits,
        }

    @classmethod
    def from_json(
        cls, value: Mapping[str, Any], prior_means: ArrayLike, prior_weights: ArrayLike
    ) -> Self:
        """Return the arms of a state; additional arms have only their prior.

        Raises:
            ValueError: The state has another version or more arms.
        """
        if value.get("version") != VERSION:
            raise ValueError(f"the state must be of version {VERSION}")
        arms = cls(prior_means, prior_weights)
        numbers = _unpacked(value["numbers"])
        places = arms._places
        places.known = {(name, text): place for name, text, place in value["known"]}
        places.rest, places.names = dict(value["rest"]), list(value["names"])
        places.moments, (places.origin, places.unit) = numbers[:3].copy(), numbers[3:].copy()
        places.left, places.right = (np.array(f, dtype=np.int64) for f in value["factors"])
        sums = Sums.from_json(value["sums"])
        n_more = arms._prior_means.size - sums.n.size
        arms._sums = sums.widened(n_arms=n_more)
        if value["night"] is not None:
            arms._night = Sums.from_json(value["night"]).widened(n_arms=n_more)
        arms._night_start = value["night_start"]
        arms._users = dict(value["users"])
        arms._sizes = [dict(levels) for levels in value["sizes"]]
        arms._n_fits, arms._n_fitted = value["n_fits"], float(arms.n)
        arms._choose([arms._fit(levels) for levels in arms._possible()])
        return arms


def _log_det(matrices: Floats) -> float:
    """Return the sum of log determinants of positive definite matrices, (n, d, d)."""
    triangles = np.linalg.cholesky(matrices)
    return float(2.0 * np.log(np.diagonal(triangles, axis1=1, axis2=2)).sum())


def _packed(array: Floats) -> list[Json]:
    data = np.ascontiguousarray(array, dtype="<f8").tobytes()
    return [list(array.shape), b64encode(compress(data, 1)).decode("ascii")]


def _unpacked(packed: Sequence[Any]) -> Floats:
    shape, text = packed
    return (
        np.frombuffer(decompress(b64decode(text)), dtype="<f8").reshape(shape).astype(np.float64)
    )
