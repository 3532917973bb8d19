"""Base model, names and settings of training rounds from a configuration."""

from dataclasses import dataclass

from convergence_core.config.feedback import TrainingConfig
from convergence_core.errors import ConfigurationError
from convergence_core.records import fields_of
from tasks.inputs.loader import Loaded
from tasks.models.files import ModelFiles, find_model
from tasks.training.jobs import Objective, TrainingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseModel:
    """Model whose adapters are trained."""

    name: str
    files: ModelFiles
    names: tuple[str, ...]
    """Names of the model in the log of answers."""


def base_model(loaded: Loaded) -> BaseModel:
    """Return the model whose adapters a configuration trains.

    Raises:
        ConfigurationError: the configuration names no model, or its files or libraries are
            missing.
    """
    api, name = loaded.configuration.api, loaded.configuration.trained_model
    served = api.request.options.get("model")
    is_fixed = isinstance(served, str) and "{" not in served
    key = "feedback.training.base_model_path"
    if name is None:
        rule = f"must name the model to train if api.kind is {api.kind}"
        fix = "Write `smollm2-135m-instruct`, a path to a `.gguf` file, or a folder in Hugging Face's format."
        raise ConfigurationError.of(key, rule, fix)
    files = find_model(name, loaded.base_dir, key=key)
    return BaseModel(name=name, files=files, names=(name, *((str(served),) if is_fixed else ())))


def settings_of(options: TrainingConfig, objective: Objective) -> TrainingSettings:
    """Return a configuration's settings of one round."""
    return TrainingSettings(
        objective=objective,
        **fields_of(options, "learning_rate", "beta", "batch_size", "steps", "max_seq_length"),
    )
