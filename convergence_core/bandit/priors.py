"""Priors of arms from a nightly run's posterior, at a discounted weight.

The run's posterior of a candidate's mean reward has a mean m and a standard deviation sd. As a Beta
it would weigh as many rewards as

    n = m (1 - m) / sd^2 - 1                                                                       (1)

Test cases are not production, so what enters is this weight times a discount, and never more than a
cap; the prior's mean stays m. One more pseudo-reward, half of it a success, keeps an arm that never
failed from being certain.

If the run was right, a heavier prior saves more; if it was wrong, an arm must earn about as many
rewards as the prior weighs before it is believed, unless the prior itself may be doubted
(``warm_start_arms``), which is why the default can be as high as it is.
"""

from dataclasses import dataclass

DISCOUNT = 1.0
"""Share of the run's weight that is believed in production."""
MOST = 20.0
"""Largest weight of a prior, in rewards."""
_MAX_EQUIVALENT = 1e12
"""Rewards beyond which more of them change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NightlyPrior:
    """Prior of an arm and its source; shown beside the arm, and dropped by a reset."""

    mean: float
    """The run's posterior mean reward."""
    sd: float
    """Its standard deviation."""
    n_equivalent: float
    """Rewards that a Beta posterior of this mean and deviation would have seen."""
    weight: float
    """Rewards that it counts for in production, the one of no opinion left out."""
    run_id: str | None = None
    """The run that learned it."""

    @property
    def alpha(self) -> float:
        """First count of the prior."""
        return self.mean * self.weight + 0.5

    @property
    def beta(self) -> float:
        """Second count of the prior."""
        return (1.0 - self.mean) * self.weight + 0.5


def nightly_prior(
    mean: float,
    sd: float,
    *,
    discount: float = DISCOUNT,
    most: float = MOST,
    run_id: str | None = None,
) -> NightlyPrior:
    """Return the prior that a batch posterior is worth.

    Args:
        mean: the posterior's mean reward, in [0, 1].
        sd: its standard deviation, above 0.
        discount: share of its weight that is believed, in [0, 1]; 0: none of it.
        most: cap on the weight, in rewards.
        run_id: the run it comes from.

    Raises:
        ValueError: an argument is out of range.
    """
    if not 0.0 <= mean <= 1.0:
        raise ValueError(f"a mean reward must lie in [0, 1], but got {mean}")
    if not sd > 0.0:
        raise ValueError(f"a standard deviation must be positive, but got {sd}")
    if not 0.0 <= discount <= 1.0 or not most >= 0.0:
        raise ValueError(
            f"discount must lie in [0, 1] and most be 0 or more, but got {discount} and {most}"
        )
    # At 0 or 1 a Beta has no variance; a hundredth inside, it has some.
    inside = min(max(mean, 0.01), 0.99)
    # Divided twice: the square of a huge deviation is no float.
    n_equivalent = inside * (1.0 - inside) / sd / sd - 1.0  # (eq. 1)
    n_equivalent = min(max(n_equivalent, 0.0), _MAX_EQUIVALENT)
    return NightlyPrior(
        mean=mean,
        sd=sd,
        n_equivalent=n_equivalent,
        weight=min(discount * n_equivalent, most),
        run_id=run_id,
    )
