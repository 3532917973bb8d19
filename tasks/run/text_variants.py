"""A run's search space gains variants of a text: everything that encodes it is made anew."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from convergence_core.records import Json
from convergence_core.search.samplers import make_sampler, make_surrogate
from convergence_core.space.text_variants import widened
from tasks.inputs.loader import Loaded
from tasks.run.prior_runs import read_past

if TYPE_CHECKING:
    from tasks.run.run import Run


def widened_by(loaded: Loaded, learned: Json) -> Loaded:
    """Return the configuration's files with the variants that a checkpoint's preferences hold."""
    found: Any = learned.get("variants") if isinstance(learned, dict) else None
    return replace(loaded, space=widened(loaded.space, found)) if found else loaded


def widen(run: "Run", variants: Mapping[str, Sequence[str]]) -> None:
    """Let a run search these variants too; what was asked keeps its identity."""
    space = widened(run.loaded.space, variants)
    if space.to_json() == run.loaded.space.to_json():
        return
    run.loaded = replace(run.loaded, space=space)
    surrogate = make_surrogate(space, deterministic=run.configuration.evaluation.deterministic)
    run.past = read_past(run.store, run.record, run.loaded, surrogate)
    run.sampler = make_sampler(
        run.configuration,
        space,
        case_weights=run.past.case_weights,
        surrogate=run.past.surrogate,
    )
    if run.thinking is not None:
        run.thinking.widen(surrogate)
    if run.preferring is not None:
        run.preferring.widen(space)
