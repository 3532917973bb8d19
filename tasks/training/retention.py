"""Retention of earlier learning: a penalty for leaving it, averages of adapters.

Elastic weight consolidation (Kirkpatrick et al. 2017, arXiv 1612.00796) on the adapter's weights.

Notation
    t   weights;  t*  the parent's;  l  lambda
    F   mean over earlier rows of the squared gradient of log p(response), at t*
    penalty = l / 2 * sum F (t - t*)^2  (eq. 3)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor


class Penalty:
    """Penalty for leaving weights that mattered to earlier rows."""

    def __init__(
        self, start: Mapping[str, Tensor], importance: Mapping[str, Tensor], weight: float
    ) -> None:
        """Keep where to stay.

        Args:
            start: weights by name, t*.
            importance: of each weight, F.
            weight: lambda.
        """
        self._start = start
        self._importance = importance
        self._weight = weight

    def __call__(self, model: Any) -> Tensor:
        """Return the penalty at the model's weights."""
        terms = [
            (self._importance[name] * (one - self._start[name]) ** 2).sum()
            for name, one in trainable(model)
        ]
        return self._weight / 2 * torch.stack(terms).sum()


def trainable(model: Any) -> list[tuple[str, Tensor]]:
    """Return the weights that are trained, by name."""
    return [(name, one) for name, one in model.named_parameters() if one.requires_grad]


def weights_penalty(
    model: Any,
    batches: Iterable[Mapping[str, Tensor]],
    logps: Callable[..., Tensor],
    weight: float,
) -> Penalty:
    """Return the penalty for leaving the weights that a model has now.

    Args:
        model: with its adapter.
        batches: one row each: a square of a mean would hide gradients that cancel.
        logps: log-probabilities of a batch's responses by a model.
        weight: lambda.
    """
    squares = {name: torch.zeros_like(one) for name, one in trainable(model)}
    n = 0
    model.eval()
    for inputs in batches:
        model.zero_grad(set_to_none=True)
        logps(model, inputs).sum().backward()
        for name, one in trainable(model):
            if one.grad is not None:
                squares[name] += one.grad.detach() ** 2
        n += 1
    model.zero_grad(set_to_none=True)
    start = {name: one.detach().clone() for name, one in trainable(model)}
    importance = {name: one / max(1, n) for name, one in squares.items()}
    return Penalty(start, importance, weight)


def average_adapters(model: Any, folders: Sequence[Path], shares: Sequence[float]) -> Any:
    """Return a model with the weighted sum of some adapters' changes as its adapter ``default``.

    PEFT's combination ``cat`` puts the factors beside each other: ranks add, and the change is the exact
    sum. Its ``linear`` adds the factors, whose product is another change.

    Args:
        model: base model without adapters; it is changed.
        folders: of adapters of this model.
        shares: weight of each.

    Raises:
        ValueError: there is no adapter, or not a share for each.
    """
    from peft import PeftModel  # noqa: PLC0415 - takes seconds

    if not folders or len(folders) != len(shares):
        raise ValueError(f"{len(folders)} adapters have {len(shares)} shares: give each its own")
    names = [f"part{i}" for i in range(len(folders))]
    wrapped = PeftModel.from_pretrained(model, folders[0], adapter_name=names[0])
    for name, folder in zip(names[1:], folders[1:], strict=True):
        wrapped.load_adapter(folder, adapter_name=name)
    wrapped.add_weighted_adapter(names, [*shares], "default", combination_type="cat")
    wrapped.set_adapter("default")
    for name in names:
        wrapped.delete_adapter(name)
    return wrapped
