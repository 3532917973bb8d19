"""What was known after each generation, as it was written down then."""

from convergence_core.result import CurvePoint
from tasks.report.evidence import RunEvidence


def learning_curve(evidence: RunEvidence) -> tuple[CurvePoint, ...]:
    """Return one point per committed generation."""
    points = []
    n_calls = 0
    usd: float | None = None
    for row in evidence.generations:
        n_calls += row.n_calls
        usd = usd if row.cost_usd is None else row.cost_usd + (usd or 0.0)
        points.append(
            CurvePoint(
                generation=row.generation,
                n_evaluations=row.n_evaluations,
                cumulative_calls=n_calls,
                best_mean=row.best_mean,
                low=row.low,
                high=row.high,
                asked_mean=row.asked_mean,
                cumulative_usd=usd,
            )
        )
    return tuple(points)
