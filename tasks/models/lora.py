"""LoRA weights in PEFT's layout, added to a model's linear layers.

Nothing of the model is replaced: an adapter is a hook on each of its layers, so that taking it off gives
the base model back bit for bit, and what else is loaded changes no answer.

Notation (Hu et al. 2022, eq. 3)
    y = W x + s B A x;   A  (r, n_in);   B  (n_out, r);   s = alpha / r, with rsLoRA alpha / sqrt(r)
"""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"
_KEY: Final = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_OTHER_KINDS: Final = (
    *("use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "modules_to_save"),
    *("trainable_token_indices", "layer_replication", "alora_invocation_tokens"),
    *("target_parameters", "arrow_config"),
)
"""Settings of PEFT that make more of an adapter than the two matrices of each layer."""


class AdapterError(Exception):
    """An adapter cannot answer; the message says why, without its path."""


class Lora:
    """Weights of one adapter, checked against the model that they are for.

    Args:
        folder: with ``adapter_config.json`` and ``adapter_model.safetensors``.
        model: of ``transformers``.

    Raises:
        AdapterError: a file is missing or broken, a number is not finite, or the adapter is another
            model's or of another kind.
    """

    def __init__(self, folder: Path, model: torch.nn.Module) -> None:
        self._name = folder.name
        config, weights = self._read(folder)
        matrices: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in weights.items():
            match = _KEY.fullmatch(key)
            if match is None:
                raise self._error(f"holds `{key}`, which is not a LoRA matrix")
            if not bool(torch.isfinite(tensor).all()):
                raise self._error(f"has numbers in `{key}` that are not finite")
            matrices.setdefault(match[1], {})[match[2]] = tensor.float()
        if not matrices:
            raise self._error("holds no weights")
        modules = dict(model.named_modules())
        self._layers = [
            self._layer(name, pair, modules.get(name), config) for name, pair in matrices.items()
        ]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def attach(self) -> None:
        """Add it to what the model computes; once, until ``detach``."""
        self._hooks = [module.register_forward_hook(_added(a, b)) for module, a, b in self._layers]

    def detach(self) -> None:
        """Take it off; safe to call twice."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    def _read(self, folder: Path) -> tuple[Mapping[str, Any], dict[str, torch.Tensor]]:
        from safetensors import SafetensorError  # noqa: PLC0415 - with its only user
        from safetensors.torch import load_file  # noqa: PLC0415 - as above

        try:
            config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
            weights = load_file(folder / WEIGHTS)
        except FileNotFoundError:
            raise self._error(
                f"is not there: its folder must hold {CONFIG} and {WEIGHTS}"
            ) from None
        except (OSError, ValueError, SafetensorError) as error:
            raise self._error(f"cannot be read: {type(error).__name__}") from None
        if not isinstance(config, dict) or config.get("peft_type") != "LORA":
            raise self._error("is of another kind: `peft_type` must be LORA")
        others = [name for name in _OTHER_KINDS if config.get(name)]
        if config.get("bias", "none") != "none":
            others.append("bias")
        if others:
            raise self._error(f"is of another kind: plain LoRA has no {', '.join(others)}")
        return config, weights

    def _layer(
        self,
        name: str,
        pair: Mapping[str, torch.Tensor],
        module: torch.nn.Module | None,
        config: Mapping[str, Any],
    ) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
        """Return a layer, and its matrices A and s B."""
        if pair.keys() != {"A", "B"}:
            raise self._error(f"lacks a matrix of `{name}`")
        a, b = pair["A"], pair["B"]
        if not isinstance(module, torch.nn.Linear):
            raise self._error(f"belongs to another model: this one has no linear layer `{name}`")
        n_out, n_in = module.weight.shape
        if a.shape[1:] != (n_in,) or b.shape != (n_out, a.shape[0]):
            shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
            wanted = f"(r, {n_in}) and ({n_out}, r)"
            raise self._error(
                f"belongs to another model: the matrices of `{name}` are {shapes}, and here {wanted}"
            )
        return module, a, b * _scale(name, a.shape[0], config)

    def _error(self, reason: str) -> AdapterError:
        return AdapterError(f"the adapter {self._name} {reason}")


def _scale(name: str, rank: int, config: Mapping[str, Any]) -> float:
    """Return s of a layer; patterns of PEFT name the end of its path."""
    alpha = config.get("lora_alpha", rank)
    for pattern, layer_alpha in (config.get("alpha_pattern") or {}).items():
        if re.fullmatch(rf"(.*\.)?({pattern})", name):
            alpha = layer_alpha
            break
    return float(alpha) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _added(a: torch.Tensor, b: torch.Tensor) -> Any:
    def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> Any:
        return output + inputs[0] @ a.T @ b.T  # (eq. 3)

    return hook
