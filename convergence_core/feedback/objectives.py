"""Training targets of ratings, thumbs and comparisons; order of rows.

A rating is trained on as its quantile among the ratings of its user (QRPO, Matrenok et al. 2025,
arXiv 2507.08068): whoever gives nothing but 4 and 5 says as much by a 4 as another one by a 1. The
paper takes quantiles among answers to one prompt; here each prompt has one rated answer, so they are
taken among a user's ratings.

Thumbs, and ratings of 4 and more or 2 and less, are desirable or undesirable answers (KTO, Ethayarajh et
al. 2024, arXiv 2402.01306). A 3 is neither and is left out.

Notation
    r_i  rating i of a user's n;  q_i = (#{r_j < r_i} + (#{r_j = r_i}) / 2) / n, in (0, 1)
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from convergence_core.feedback.records import Rating

DESIRABLE_FROM: Final = 4
"""Lowest rating of a desirable answer."""
UNDESIRABLE_TO: Final = 2
"""Highest rating of an undesirable answer."""
MIN_RATINGS_PER_USER: Final = 5
"""Ratings of a user from which their quantiles are taken among their own; before, among everybody's."""

Floats = NDArray[np.float64]


def mid_rank_quantiles(values: Sequence[float], among: Sequence[float] | None = None) -> Floats:
    """Return the share of values below each, ties counted half, shape (n,).

    Args:
        values: numbers of any scale.
        among: what they are compared with and are part of; ``None`` means each other.
    """
    ordered = np.sort(np.asarray(values if among is None else among, dtype=float))
    points = np.asarray(values, dtype=float)
    below = np.searchsorted(ordered, points, side="left")
    up_to = np.searchsorted(ordered, points, side="right")
    quantiles: Floats = (below + up_to) / (2.0 * max(1, len(ordered)))
    return quantiles


def rating_quantiles(users: Sequence[str], ratings: Sequence[float]) -> Floats:
    """Return the target of each rating, in (0, 1), shape (n,).

    A user's ratings are ranked among their own; those of a user with fewer than ``MIN_RATINGS_PER_USER`` among
    everybody's, for a single rating has no rank. Equal ratings have equal targets, and the order of
    the rows does not matter.

    Args:
        users: who gave each rating.
        ratings: of any scale; higher is better.

    Raises:
        ValueError: there are not as many users as ratings.
    """
    if len(users) != len(ratings):
        raise ValueError(f"{len(users)} users gave {len(ratings)} ratings: give a user for each")
    counts = Counter(users)
    given = np.asarray(ratings, dtype=float)
    targets = np.empty(len(given))
    for user in counts:
        is_users = np.array([rater == user for rater in users])
        among = given[is_users] if counts[user] >= MIN_RATINGS_PER_USER else given
        targets[is_users] = mid_rank_quantiles(given[is_users].tolist(), among.tolist())
    return targets


def desirability(rating: Rating) -> bool | None:
    """Return whether an answer is desirable; ``None`` means a 3, which is neither."""
    if rating.rating is None:
        return rating.thumbs == "up"
    if rating.rating >= DESIRABLE_FROM:
        return True
    return False if rating.rating <= UNDESIRABLE_TO else None


def balanced_weights(desirable: Sequence[bool]) -> Floats:
    """Return weights by which both kinds of answers weigh the same in sum, shape (n,).

    Their mean is 1, so that the learning rate means the same whatever the shares; the weight of a
    desirable answer is n_bad / n_good times that of another. Where all are of one kind, each weighs 1.
    """
    is_good = np.asarray(desirable, dtype=bool)
    n, n_good = len(is_good), int(is_good.sum())
    if n_good in {0, n}:
        return np.ones(n)
    weights: Floats = np.where(is_good, n / (2.0 * n_good), n / (2.0 * (n - n_good)))
    return weights


def seeded_order(keys: Sequence[str], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the order in which rows are read, shape (n,): by key, then shuffled.

    Rows come from a database in an order that may follow their marks; sorted by key first, the same rows
    have the same order wherever they came from.
    """
    by_key = np.array(sorted(range(len(keys)), key=lambda i: keys[i]), dtype=np.int64)
    order: NDArray[np.int64] = by_key[rng.permutation(len(keys))]
    return order
