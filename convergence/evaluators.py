"""Built-in evaluators."""

from collections.abc import Mapping

from tasks.secrets.process_redaction import redacted_text
from tasks.secrets.redaction import one_line


def reported(
    result: object,
    expected: object,  # noqa: ARG001 - evaluators get these arguments by name
    params: object,  # noqa: ARG001 - as above
    metric: str,
) -> float:
    """Return the number that the target reports about itself.

    This is the result's field with the metric's name, or the result itself if it is a number.

    Raises:
        ValueError: the target reports no such number.
    """
    value = result.get(metric) if isinstance(result, Mapping) else result
    if isinstance(value, bool | int | float):
        return float(value)
    shown = one_line(str(result), 80, redacted_text)
    raise ValueError(
        f"metric {metric!r} needs an evaluator, or a number named {metric!r} in the target's "
        f"answer, which was {shown!r}. Give `evaluator=` to run_optimization."
    )
