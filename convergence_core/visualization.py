"""Names of a report's plots, apart from the models, which import slowly."""

import json
from typing import Final, Literal, TypeAlias, get_args

Visualization: TypeAlias = Literal["learning_curve", "parameter_effects", "tradeoffs", "spend"]
VISUALIZATIONS: Final[tuple[Visualization, ...]] = get_args(Visualization)


def visualizations_of(config_json: str) -> tuple[Visualization, ...]:
    """Return ``output.visualizations`` of what ``Configuration.to_json`` wrote, without its models.

    Raises:
        ValueError: the text was not made by it.
    """
    try:
        named = json.loads(config_json)["output"]["visualizations"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no configuration: it has no {error} in `output`") from error
    return tuple(known for known in VISUALIZATIONS if known in named)
