"""LoRA weights in PEFT's layout, added to a model's linear layers.

The model's own weights stay unchanged: an adapter is a hook on each of its layers. So removing it
restores the base model bit for bit, and other loaded adapters change no answer.

Notation (Hu et al. 2022, eq. 3)
    y = W x + s B A x;   A  (r, n_in);   B  (n_out, r);   s = alpha / r, with rsLoRA alpha /
    sqrt(r)
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import AfterValidator, BaseModel, FiniteFloat, ValidationError

from convergence_core.config.secrecy import shown

WEIGHTS: Final = "adapter_model.safetensors"
CONFIG: Final = "adapter_config.json"
_KEY: Final = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
_END: Final = r"(.*\.)?({})"
"""Regular expression of a layer's path whose end matches a pattern of PEFT."""
_OTHER_KINDS: Final = (
    *("use_dora", "use_qalora", "lora_bias", "fan_in_fan_out", "modules_to_save"),
    *("trainable_token_indices", "layer_replication", "alora_invocation_tokens"),
    *("target_parameters", "arrow_config"),
)
"""PEFT settings of adapters that are more than two matrices per layer."""


def _compiles(pattern: str) -> str:
    try:
        re.compile(_END.format(pattern))
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
    return pattern


class _Settings(BaseModel, extra="allow"):
    """PEFT's settings; the extra ones give the kind of the adapter."""

    peft_type: Literal["LORA"]
    lora_alpha: FiniteFloat | None = None
    alpha_pattern: dict[Annotated[str, AfterValidator(_compiles)], FiniteFloat] | None = None
    use_rslora: bool | None = None
    bias: str = "none"


class AdapterError(Exception):
    """An adapter cannot answer; the message gives the reason, without its path."""


class Lora:
    """Weights of one adapter, checked against its model.

    Args:
        folder: Folder with ``adapter_config.json`` and ``adapter_model.safetensors``.
        model: Model of ``transformers``.

    Raises:
        AdapterError: a file is missing or broken, a number is not finite, or the adapter is of
            another model or kind.
    """

    def __init__(self, folder: Path, model: torch.nn.Module) -> None:
        self._name = folder.name
        config, weights = self._read(folder)
        matrices: dict[str, dict[str, torch.Tensor]] = {}
        for key, tensor in weights.items():
            match = _KEY.fullmatch(key)
            if match is None:
                raise self._error(f"holds `{key}`, which is not a LoRA matrix")
            matrix = matrices.setdefault(match[1], {})[match[2]] = tensor.float()
            if not bool(torch.isfinite(matrix).all()):
                raise self._error(f"has numbers in `{key}` that are not finite")
        if not matrices:
            raise self._error("holds no weights")
        modules = dict(model.named_modules())
        self._layers = [
            self._layer(name, pair, modules.get(name), config) for name, pair in matrices.items()
        ]
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []

    def attach(self) -> None:
        """Add the adapter to the model's output; call once, until ``detach``."""
        self._hooks = [module.register_forward_hook(_added(a, b)) for module, a, b in self._layers]

    def detach(self) -> None:
        """Remove the adapter from the model; safe to call twice."""
        hooks, self._hooks = self._hooks, []
        for hook in hooks:
            hook.remove()

    def _read(self, folder: Path) -> tuple[_Settings, dict[str, torch.Tensor]]:
        from safetensors import SafetensorError  # noqa: PLC0415 - with its only user
        from safetensors.torch import load_file  # noqa: PLC0415 - as above

        try:
            config = _Settings.model_validate_json((folder / CONFIG).read_bytes())
            weights = load_file(folder / WEIGHTS)
        except FileNotFoundError:
            raise self._error(
                f"is not there: its folder must hold {CONFIG} and {WEIGHTS}"
            ) from None
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            key = str(next(iter(first["loc"]), CONFIG))
            value = shown(first["input"], key)
            raise self._error(f"has a wrong `{key}`, {value}: {first['msg']}") from None
        except (OSError, ValueError, SafetensorError) as error:
            raise self._error(f"cannot be read: {type(error).__name__}") from None
        others = [name for name in _OTHER_KINDS if (config.model_extra or {}).get(name)]
        if config.bias != "none":
            others.append("bias")
        if others:
            raise self._error(f"is of another kind: plain LoRA has no {', '.join(others)}")
        return config, weights

    def _layer(
        self,
        name: str,
        pair: Mapping[str, torch.Tensor],
        module: torch.nn.Module | None,
        config: _Settings,
    ) -> tuple[torch.nn.Module, torch.Tensor, torch.Tensor]:
        """Return a layer, and its matrices A and s B."""
        if pair.keys() != {"A", "B"}:
            raise self._error(f"lacks a matrix of `{name}`")
        a, b = pair["A"], pair["B"]
        if not isinstance(module, torch.nn.Linear):
            raise self._error(f"belongs to another model: this one has no linear layer `{name}`")
        n_out, n_in = module.weight.shape
        if 0 in a.shape or a.shape[1:] != (n_in,) or b.shape != (n_out, a.shape[0]):
            shapes = f"{tuple(a.shape)} and {tuple(b.shape)}"
            wanted = f"(r, {n_in}) and ({n_out}, r) with a rank r of at least 1"
            raise self._error(
                f"belongs to another model: the matrices of `{name}` are {shapes}, and must be {wanted}"
            )
        scaled = b * _scale(name, a.shape[0], config)
        if not bool(torch.isfinite(scaled).all()):
            raise self._error(f"has an alpha that makes numbers of `{name}` infinite")
        return module, a, scaled

    def _error(self, reason: str) -> AdapterError:
        return AdapterError(f"the adapter {self._name} {reason}")


def _scale(name: str, rank: int, config: _Settings) -> float:
    """Return s of a layer; PEFT's patterns match the end of its path."""
    alpha = rank if config.lora_alpha is None else config.lora_alpha
    for pattern, layer_alpha in (config.alpha_pattern or {}).items():
        if re.fullmatch(_END.format(pattern), name):
            alpha = layer_alpha
            break
    return alpha / (math.sqrt(rank) if config.use_rslora else rank)


def _added(a: torch.Tensor, b: torch.Tensor) -> Any:
    def hook(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> Any:
        return output + inputs[0] @ a.T @ b.T  # (eq. 3)

    return hook
