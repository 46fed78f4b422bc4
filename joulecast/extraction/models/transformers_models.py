"""Models of the `transformers` library, built from a configuration without weights, and their inputs."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ExtractionError, InputError, MissingDependencyError, named, with_extra
from ...operations.inputs import Input, Inputs
from ...system.damage import first_line
from ..exclusive import exclusive
from ..known_values import know
from ..recorder import Recorder
from .configurations import configuration_of, model_class_of
from .language_models import BY_NAME, Architecture
from .torchvision_models import import_torchvision

if TYPE_CHECKING:
    from ..tracing import Forward


@exclusive
def import_transformers() -> ModuleType:
    """Import transformers, even if torchvision's native operators cannot be loaded."""
    if importlib.util.find_spec("transformers") is None:
        raise MissingDependencyError("this model needs transformers", hint=with_extra("transformers"))
    if importlib.util.find_spec("torchvision") is not None:
        import_torchvision()  # transformers imports it
    return importlib.import_module("transformers")


@contextmanager
def offline() -> Iterator[None]:
    """Prevent downloads while a configuration or model is created, which may name a backbone from the hub."""
    hub: Any = importlib.import_module("huggingface_hub.constants")
    before, hub.HF_HUB_OFFLINE = hub.HF_HUB_OFFLINE, True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = before


def build(name: str, **options: Any) -> torch.nn.Module:
    """Build a model of the table on the meta device, with sizes that differ from the table's."""
    named("transformer", name, BY_NAME)
    return without_weights(BY_NAME[name], **options)


def build_to_run(name: str, **options: Any) -> torch.nn.Module:
    """Build a model of the table with random weights on the CPU, with sizes that differ from the table's."""
    row = BY_NAME[name]
    model_class = _class(row.class_name)
    with offline(), torch.random.fork_rng(devices=[]):
        model: torch.nn.Module = model_class._from_config(model_class.config_class(**{**row.sizes, **options}))
    return model


def without_weights(row: Architecture, **settings: Any) -> torch.nn.Module:
    """Build the model of a row of the table on the meta device."""
    model_class = _class(row.class_name)
    return _without_weights(model_class, model_class.config_class(**{**row.sizes, **settings}))


@exclusive
def from_config(config: Any) -> torch.nn.Module:
    """Build what a configuration describes, on the meta device: the class that it names, or the bare model.

    The configuration is a `transformers.PretrainedConfig`, or the content of a config.json, of which only sizes and
    plain words are used.

    Raises:
        InputError: transformers does not know this type of model or this class, a field of the content names code,
            files or another library, or it has too many layers.
        ExtractionError: The configuration does not make a model.
    """
    transformers = import_transformers()
    if isinstance(config, Mapping):
        with offline():
            config = configuration_of(config, transformers)
    return _without_weights(model_class_of(config, transformers), config)


def _class(name: str) -> Any:
    transformers = import_transformers()
    if name == "WhisperEncoder":
        return importlib.import_module("transformers.models.whisper.modeling_whisper").WhisperEncoder
    return getattr(transformers, name)


def _without_weights(model_class: Any, config: Any) -> torch.nn.Module:
    no_init = importlib.import_module("transformers.initialization").no_init_weights
    try:
        with offline(), torch.device("meta"), no_init(), torch.random.fork_rng(devices=[]):
            model = model_class._from_config(config)
            model.tie_weights()
    except Exception as error:
        raise ExtractionError(
            f"this configuration does not make a {model_class.__name__}",
            given=first_line(error),
            hint="build the model from this configuration with transformers alone, and mend what that reports",
        ) from error
    built: torch.nn.Module = model
    return built


def is_transformer(module: Any) -> bool:
    """Whether a module is a model of transformers. This is only possible if transformers is imported."""
    return hasattr(module, "main_input_name") and hasattr(module, "config") and hasattr(module, "dummy_inputs")


def named_inputs(module: Any, inputs: Inputs) -> Inputs:
    """Give inputs the names of a transformer's arguments, and make token ids and masks integers.

    A single shape is that of the main input (input_ids, pixel_values, input_features). For a model with encoder and
    decoder, decoder_input_ids get the same shape as the main input if they are not given, as in training.
    """
    named = dict(inputs.named)
    positional = inputs.positional
    main = module.main_input_name
    if len(positional) == 1 and main not in named:
        named, positional = {main: positional[0], **named}, ()
    both = getattr(module.config, "is_encoder_decoder", False) and main == "input_ids"
    if both and main in named and not any(name.startswith("decoder_input") for name in named):
        named["decoder_input_ids"] = named[main]
    for name, item in named.items():
        if name.endswith(("_ids", "_mask")) and item.dtype is None:
            named[name] = Input(item.shape, "int64")
    return Inputs(positional, tuple(named.items()))


def prepare(forward: Forward, mode: str, cache_length: int | None) -> None:
    """Add further arguments to the forward of a transformer: a mask without padding, and cached keys and values.

    Raises InputError: there are more tokens than the model has positions, or the model has no cache.
    """
    module: Any = forward.module
    for name, tensor in forward.kwargs.items():
        if name.endswith("_mask"):
            # One element in memory, whatever the size of the mask.
            know(tensor, torch.ones((), dtype=tensor.dtype).expand(tensor.shape))
        if name.endswith("input_ids"):
            # No padding: models warn or make decisions if they see it.
            token = 1 if getattr(module.config, "pad_token_id", None) != 1 else 2
            know(tensor, torch.tensor(token, dtype=tensor.dtype).expand(tensor.shape), is_assumed=True)
    ids = forward.kwargs.get("input_ids")
    if ids is not None and ids.ndim == 2:
        _refuse_long(module, ids.shape[1] + (cache_length or 0))
    if mode == "training" and getattr(module.config, "use_cache", False):
        forward.kwargs.setdefault("use_cache", False)  # as transformers.Trainer does
    if cache_length is not None:
        if mode == "training":
            raise InputError(
                "a cache of keys and values is for inference",
                given=f"cache_length={cache_length}, training",
                allowed='mode="inference"',
                hint="leave out cache_length, or ask about inference",
            )
        forward.kwargs["past_key_values"] = _cache(forward, cache_length)


def _refuse_long(module: Any, length: int) -> None:
    most = getattr(module.config, "max_position_embeddings", None)
    # The meta device does not check indices. Rotary positions have no table, and therefore no limit.
    tables = {part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)}
    if most in tables and length > most:
        raise InputError("more tokens than the model has positions", given=length, allowed=f"up to {most}")


def _cache(forward: Forward, length: int) -> Any:
    """The cache of keys and values after a prefill with this number of tokens."""
    module: Any = forward.module
    ids = forward.kwargs.get("input_ids")
    result = None
    if ids is not None and not getattr(module.config, "is_encoder_decoder", False):
        prefill = forward.with_inputs(
            Inputs(named=(("input_ids", Input((ids.shape[0], length), "int64")),)), {"use_cache": True}
        )
        result = prefill.record(Recorder(module, "inference", "default", ()))
    cache = getattr(result, "past_key_values", None)
    if cache is None:
        raise InputError(
            "this model has no cache of keys and values",
            given=f"cache_length={length} for {type(module).__name__}",
            hint="leave cache_length out; it is for models that only decode, such as gpt2 or llama3_8b",
        )
    return cache
