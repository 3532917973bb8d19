"""Training targets of ratings, thumbs and comparisons; order of rows.

A rating is trained on as its quantile among the ratings of its user (QRPO, Matrenok et al. 2025,
arXiv 2507.08068): a 4 from a user who gives only 4 and 5 means as much as a 1 from another user.
The paper takes quantiles among answers to one prompt. Here each prompt has one rated answer, so
quantiles are taken among a user's ratings.

Thumbs, and ratings of 4 and more or 2 and less, are desirable or undesirable answers (KTO,
Ethayarajh et al. 2024, arXiv 2402.01306). A 3 is neither and is left out.

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
"""Minimum rating of a desirable answer."""
UNDESIRABLE_TO: Final = 2
"""Maximum rating of an undesirable answer."""
MIN_RATINGS_PER_USER: Final = 5
"""Minimum ratings of a user for quantiles among their own; with fewer, all users' ratings are
used.
"""

Floats = NDArray[np.float64]


def mid_rank_quantiles(values: Sequence[float], among: Sequence[float] | None = None) -> Floats:
    """Return the share of values below each, ties counted half, shape (n,).

    Args:
        values: Numbers on any scale.
        among: Numbers for comparison, which include the values; ``None`` means the values.
    """
    ordered = np.sort(np.asarray(values if among is None else among, dtype=float))
    points = np.asarray(values, dtype=float)
    below = np.searchsorted(ordered, points, side="left")
    up_to = np.searchsorted(ordered, points, side="right")
    quantiles: Floats = (below + up_to) / (2.0 * max(1, len(ordered)))
    return quantiles


def rating_quantiles(users: Sequence[str], ratings: Sequence[float]) -> Floats:
    """Return the target of each rating, in (0, 1), shape (n,).

    A user's ratings are ranked among themselves, or among everybody's if there are fewer than
    ``MIN_RATINGS_PER_USER``, because a single rating has no rank. Equal ratings of a user have
    equal targets, and the order of the rows does not matter.

    Args:
        users: User of each rating.
        ratings: Ratings on any scale; higher is better.

    Raises:
        ValueError: the numbers of users and ratings differ.
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
    """Return whether an answer is desirable; ``None`` for a 3, which is neither."""
    if rating.rating is None:
        return rating.thumbs == "up"
    if rating.rating >= DESIRABLE_FROM:
        return True
    return False if rating.rating <= UNDESIRABLE_TO else None


def balanced_weights(desirable: Sequence[bool]) -> Floats:
    """Return weights that give both kinds of answers the same total, shape (n,).

    Their mean is 1, so that the learning rate has the same meaning for any shares. The weight of a
    desirable answer is n_bad / n_good times that of another. If all are of one kind, each has
    weight 1.
    """
    is_good = np.asarray(desirable, dtype=bool)
    n, n_good = len(is_good), int(is_good.sum())
    if n_good in {0, n}:
        return np.ones(n)
    weights: Floats = np.where(is_good, n / (2.0 * n_good), n / (2.0 * (n - n_good)))
    return weights


def seeded_order(keys: Sequence[str], rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the order of rows, shape (n,): sorted by key, then shuffled.

    A database may return rows in an order that follows their ratings. After sorting by key, the
    same rows always have the same order.
    """
    by_key = np.array(sorted(range(len(keys)), key=lambda i: keys[i]), dtype=np.int64)
    order: NDArray[np.int64] = by_key[rng.permutation(len(keys))]
    return order
