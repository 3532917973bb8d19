"""Checkpoints of a policy: numbers as in ``safetensors``, metadata in JSON.

The layout is that of Hugging Face's format: the length of the header in 8 bytes, the header in JSON (of each
array type, shape and offsets; texts under ``__metadata__``), then the arrays. It holds numbers and texts only,
so reading one runs no code. A saved and loaded policy continues bit for bit.
"""

import json
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np

from convergence_core.errors import PolicyCheckpointError
from convergence_core.policy.learner import PPOState
from convergence_core.policy.network import ActorCritic, Floats, count_weights, layer_shapes
from convergence_core.policy.settings import PPOConfig
from convergence_core.records import fields_of

FORMAT = "convergence-policy-1"
TYPES: dict[str, np.dtype[np.floating[Any]]] = {"F32": np.dtype("<f4"), "F64": np.dtype("<f8")}
_COUNTS = ("n_gradient_steps", "version", "n_steps")
LONGEST_HEADER = 1_000_000
"""Maximum length in bytes; ours have a few thousand."""
PolicyIdentity: TypeAlias = tuple[str, tuple[str, ...]]
"""Meaning of a policy's numbers: the name of its embedding, such as ``text-embedding-3-small``,
and the names of the actions, in the order of the logits.
"""


def pack(
    state: PPOState, config: PPOConfig, identity: PolicyIdentity, generator: dict[str, Any]
) -> bytes:
    """Return a checkpoint's bytes.

    Args:
        state: the policy.
        config: its settings.
        identity: its embedding and actions, by which another system is refused.
        generator: state of the random generator, as of ``rng.bit_generator.state``.
    """
    embedding, actions = identity
    arrays = dict(state.networks.named())
    arrays |= {"adam.first_moment": state.first_moment, "adam.second_moment": state.second_moment}
    texts = {
        "format": FORMAT,
        "config": asdict(config),
        "embedding": embedding,
        "actions": list(actions),
        "counts": fields_of(state, *_COUNTS),
        "generator": generator,
    }
    header: dict[str, Any] = {
        "__metadata__": {name: json.dumps(text) for name, text in texts.items()}
    }
    bodies, start = [], 0
    for name, array in arrays.items():
        kind = {4: "F32", 8: "F64"}[array.dtype.itemsize]
        body = np.ascontiguousarray(array, dtype=TYPES[kind]).tobytes()
        offsets = [start, start + len(body)]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": offsets}
        bodies.append(body)
        start += len(body)
    text = json.dumps(header).encode("utf-8")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(bodies)


def unpack(data: bytes, identity: PolicyIdentity) -> tuple[PPOState, PPOConfig, dict[str, Any]]:
    """Return the policy of a checkpoint, its settings, and the generator's state.

    Raises:
        PolicyCheckpointError: it is damaged, of another kind, or of another embedding or set of actions.
    """
    try:
        header, body = _taken_apart(data)
        texts = {name: json.loads(text) for name, text in header.pop("__metadata__").items()}
        if texts["format"] != FORMAT:
            raise PolicyCheckpointError(
                f"a checkpoint must be of the format {FORMAT}, but got {texts['format']}"
            )
        _check_identity(texts, identity)
        config, counts = PPOConfig(**texts["config"]), texts["counts"]
        arrays = {name: _array(entry, body) for name, entry in header.items()}
        state = _state(arrays, config, counts)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise PolicyCheckpointError(
            f"a checkpoint must be a whole file that `save` wrote, but this one is damaged: {problem!r}. "
            "Load an earlier one"
        ) from problem
    return state, config, texts["generator"]


def _taken_apart(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LONGEST_HEADER, len(data) - 8):
        raise ValueError(f"{len(data)} bytes with a header of {length}")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def _array(entry: dict[str, Any], body: bytes) -> Floats:
    start, end = entry["data_offsets"]
    if not 0 <= start <= end <= len(body):
        raise ValueError(f"an array lies outside the file: {start} to {end} of {len(body)} bytes")
    kind = TYPES[entry["dtype"]]
    array = np.frombuffer(body[start:end], dtype=kind).reshape(entry["shape"])
    if not np.isfinite(array).all():
        raise ValueError("a number is not finite")
    native: Floats = array.astype(kind.newbyteorder("="), copy=True)
    return native


def _check_identity(texts: dict[str, Any], identity: PolicyIdentity) -> None:
    embedding, actions = identity
    if texts["embedding"] != embedding:
        raise PolicyCheckpointError(
            f"a checkpoint's embedding must be `{embedding}`, but got `{texts['embedding']}`; "
            "train again, or use that embedding"
        )
    if tuple(texts["actions"]) != actions:
        raise PolicyCheckpointError(
            f"a checkpoint's actions must be {', '.join(actions)}, but got "
            f"{', '.join(map(str, texts['actions']))}; train again, or offer those"
        )


def _state(arrays: dict[str, Floats], config: PPOConfig, counts: dict[str, Any]) -> PPOState:
    shapes = layer_shapes(config.input_dim, config.hidden_sizes, config.action_dim)
    first, second = arrays.pop("adam.first_moment"), arrays.pop("adam.second_moment")
    size = count_weights(shapes)
    if first.shape != (size,) or second.shape != (size,):
        raise ValueError(f"the optimizer must have {size} numbers, but got {first.size}")
    networks = ActorCritic.over(np.zeros(size, dtype=first.dtype), shapes)
    for name, view in networks.named():
        array = arrays.pop(name)
        if array.shape != view.shape or array.dtype != view.dtype or second.dtype != view.dtype:
            raise ValueError(f"`{name}` must have shape {view.shape}, but got {array.shape}")
        view[:] = array
    if arrays:
        raise ValueError(f"unknown arrays: {', '.join(arrays)}")
    numbers = {name: counts[name] for name in _COUNTS}
    if not all(isinstance(number, int) and number >= 0 for number in numbers.values()):
        raise ValueError(f"counts must be whole numbers, 0 or more, but got {numbers}")
    return PPOState(networks=networks, first_moment=first, second_moment=second, **numbers)
