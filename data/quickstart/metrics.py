"""How good a ranking is: normalized discounted cumulative gain (Järvelin & Kekäläinen 2002).

DCG@10 = sum over ranks i = 1..10 of grade_i / log2(i + 1); nDCG@10 divides by the DCG of the best
possible ranking. The discount log2(i + 1) is the one in common use: the paper's leaves rank 2 at
full value. Gains are the grades themselves, so with grades 0 and 1 all variants agree.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

N_RANKS = 10


def ndcg_at_10(prediction: object, expected: Mapping[str, Any], context: object = None) -> float:
    """Return nDCG@10 of `prediction["result"]`, in [0, 1].

    Args:
        prediction: The function's answer: `{"result": [name, ...]}`, best first. A name that comes
            again gains nothing. An answer of another shape gains nothing at all.
        expected: `{"relevant": [name, ...]}`, or `{"relevant": {name: grade, ...}}` with grades of
            at least 0.
        context: Not used; the optimizer passes it to every metric.

    Raises:
        ValueError: The test case names nothing relevant, or a grade is below 0.
    """
    del context
    relevant = expected["relevant"]
    name_to_grade = (
        {name: float(grade) for name, grade in relevant.items()}
        if isinstance(relevant, Mapping)
        else dict.fromkeys(relevant, 1.0)
    )
    if any(not grade >= 0 for grade in name_to_grade.values()) or not any(name_to_grade.values()):
        raise ValueError(
            f"`relevant` must hold a name with a grade above 0 and none below, but got {relevant!r}."
        )
    result = prediction.get("result") if isinstance(prediction, Mapping) else None
    if not isinstance(result, list):
        return 0.0
    ranked = list(dict.fromkeys(name for name in result if isinstance(name, str)))
    gained = _dcg(name_to_grade.get(name, 0.0) for name in ranked[:N_RANKS])
    ideal = _dcg(sorted(name_to_grade.values(), reverse=True)[:N_RANKS])
    return min(1.0, gained / ideal)


def _dcg(grades: Iterable[float]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))
