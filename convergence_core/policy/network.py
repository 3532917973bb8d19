"""Tanh networks with gradients by hand, and the pair of them that a policy needs.

Policy and value have a network each: three hidden layers and a linear head,

    h_0 = x,   h_l = tanh(h_{l-1} W_l + b_l),   y = h_L W + b                                       (1)
    dE/dW = h_{l-1}^T g_l,   dE/db = sum g_l,   g_{l-1} = (g_l W_l^T) (1 - h_{l-1}^2)                (2)

with g_l = dE/d(h_{l-1} W_l + b_l). Weights begin orthogonal (A. Saxe et al., 2014), with gain sqrt 2, at the
policy's head .01, so that the first policy is nearly uniform, and at the value's 1; biases begin at 0.

There is no batch normalization: a rollout would see running statistics and the update those of its batch,
and the likelihood ratio would differ from 1 before anything was learned. There is no dropout for the same
reason.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

Floats = NDArray[np.floating[Any]]
HIDDEN_GAIN = float(np.sqrt(2.0))
POLICY_GAIN = 0.01
VALUE_GAIN = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TanhNetwork:
    """Weights of one network, or a gradient with respect to them."""

    weights: tuple[Floats, ...]
    """Weights of each layer, (n_inputs, n_outputs)."""
    biases: tuple[Floats, ...]
    """Biases of each layer, (n_outputs,)."""

    def layers(self, x: Floats) -> list[Floats]:
        """Return the input, each hidden layer and the output, n rows each (eq. 1)."""
        outputs = [x]
        for weights, biases in zip(self.weights[:-1], self.biases[:-1], strict=True):
            h = outputs[-1] @ weights
            h += biases
            outputs.append(np.tanh(h, out=h))
        outputs.append(outputs[-1] @ self.weights[-1] + self.biases[-1])
        return outputs

    def backward(self, layers: list[Floats], gradient: Floats, into: Self) -> None:
        """Write dE/dW and dE/db into a network of the same shape (eq. 2).

        Args:
            layers: result of the forward pass.
            gradient: dE/dy, (n, n_outputs).
            into: receives the gradient; its previous content is overwritten.
        """
        g = gradient
        for place in reversed(range(len(self.weights))):
            h = layers[place]
            np.matmul(h.T, g, out=into.weights[place])
            np.sum(g, axis=0, out=into.biases[place])
            if place:
                g = (g @ self.weights[place].T) * (1.0 - h * h)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActorCritic:
    """Policy and value networks over one vector of weights."""

    flat: Floats
    """All weights, (n_parameters,); both networks are views of it."""
    policy: TanhNetwork
    """Observation to logits, (n, n_actions)."""
    value: TanhNetwork
    """Observation to the expected discounted return, (n, 1)."""

    @classmethod
    def over(cls, flat: Floats, shapes: tuple[tuple[int, int], ...]) -> Self:
        """Return both networks as views of a vector.

        Args:
            flat: weights, (n_parameters,).
            shapes: shapes of each layer's weights, the policy's first, as from ``layer_shapes``.
        """
        views, start = [], 0
        for n_in, n_out in shapes:
            middle, end = start + n_in * n_out, start + n_in * n_out + n_out
            views.append((flat[start:middle].reshape(n_in, n_out), flat[middle:end]))
            start = end
        if start != flat.size:
            raise ValueError(f"the networks have {start} weights, but got {flat.size}")
        half = len(views) // 2
        policy, value = (
            TanhNetwork(weights=tuple(w for w, _ in part), biases=tuple(b for _, b in part))
            for part in (views[:half], views[half:])
        )
        return cls(flat=flat, policy=policy, value=value)

    @classmethod
    def begin(
        cls,
        n_inputs: int,
        hidden: tuple[int, ...],
        n_actions: int,
        rng: np.random.Generator,
        *,
        dtype: DTypeLike = np.float32,
    ) -> Self:
        """Return networks with orthogonal weights and biases of 0."""
        shapes = layer_shapes(n_inputs, hidden, n_actions)
        made = cls.over(np.zeros(count_weights(shapes), dtype=dtype), shapes)
        for network, head in ((made.policy, POLICY_GAIN), (made.value, VALUE_GAIN)):
            gains = [HIDDEN_GAIN] * len(hidden) + [head]
            for weights, gain in zip(network.weights, gains, strict=True):
                weights[:] = gain * _orthogonal(weights.shape[0], weights.shape[1], rng)
        return made

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """Shapes of each layer's weights, the policy's first."""
        both = (*self.policy.weights, *self.value.weights)
        return tuple((matrix.shape[0], matrix.shape[1]) for matrix in both)

    def copied(self) -> Self:
        """Return the same networks over a copy of the vector."""
        return self.over(self.flat.copy(), self.shapes)

    def named(self) -> Iterator[tuple[str, Floats]]:
        """Yield each array with its name, such as ``policy.0.weight``."""
        for name, network in (("policy", self.policy), ("value", self.value)):
            for place, (weights, biases) in enumerate(
                zip(network.weights, network.biases, strict=True)
            ):
                yield f"{name}.{place}.weight", weights
                yield f"{name}.{place}.bias", biases


def layer_shapes(
    n_inputs: int, hidden: tuple[int, ...], n_actions: int
) -> tuple[tuple[int, int], ...]:
    """Return the shapes of each layer's weights, the policy's first."""
    return tuple(
        pair
        for n_outputs in (n_actions, 1)
        for pair in zip((n_inputs, *hidden), (*hidden, n_outputs), strict=True)
    )


def count_weights(shapes: tuple[tuple[int, int], ...]) -> int:
    """Return the number of parameters of networks of these shapes, including biases."""
    return sum((n_in + 1) * n_out for n_in, n_out in shapes)


def _orthogonal(n_in: int, n_out: int, rng: np.random.Generator) -> Floats:
    """Return a matrix with orthonormal columns, or orthonormal rows if those are fewer."""
    tall = rng.standard_normal((max(n_in, n_out), min(n_in, n_out)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # otherwise the decomposition, not the draw, chooses the signs
    return q if n_in >= n_out else q.T
