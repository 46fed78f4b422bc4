"""Models of the `transformers` library, built from a configuration without weights, and their inputs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ExtractionError, InputError, MissingDependencyError, named, unknown_name, with_extra
from ...operations.inputs import Input, Inputs
from ...system.regular_files import first_line
from ..job import Job
from ..known_values import know
from ..recorder import Recorder
from . import exclusive
from .language_models import BY_NAME, Architecture
from .torchvision_models import import_torchvision

if TYPE_CHECKING:
    from ..tracing import Forward


# Configurations of transformers from files: sizes and plain words reach the library, and nothing else does.
#
# A config.json comes from strangers. Some of its fields name code, files, kernels or models of other libraries,
# which transformers would load: `auto_map`, `backbone`, `attn_implementation`, the arguments of timm. A file may
# therefore set only the fields that the class of its configuration declares, to numbers and plain words; and only
# classes of transformers itself are built.

_MOST_LAYERS = 1000  # ten times those of the deepest language models; each takes milliseconds to build and trace
_DEEPEST = 6  # lists and objects within each other; a configuration with the rope of one of its parts has 3
_WORD = re.compile(r"[\w +-]{0,64}", re.ASCII)
_NAMES_OTHERS = re.compile(
    r"backbone|timm|^_?auto_map$|^trust_remote_code$|_implementation(_internal)?$|^model_args$|pretrained_cfg|"
    r"(path|file|folder|dir|url|repo|checkpoint)$"
)
_PLAIN_ATTENTION = ("eager", "sdpa")  # the others load kernels
_TYPES = ("float32", "float16", "bfloat16", "float64", "auto")
# What every configuration may have, though not every class declares it.
_OF_ALL = {
    *("architectures", "dtype", "torch_dtype", "rope_parameters", "rope_scaling", "per_layer_config", "layer_types")
}
# What published configurations have and no model is built from.
_IGNORED = {"_name_or_path", "name_or_path", "transformers_version", "label2id"}
_HINT = "leave it out; or build the model in Python, where you trust its source, and give the module"


def configuration_of(content: Mapping[str, Any], transformers: Any) -> Any:
    """The configuration that a file holds, as a `transformers.PretrainedConfig`.

    Raises InputError: transformers has no such type of model; a field names code, files or another library; a value
    does not fit; or the model has too many layers.
    """
    kind = content.get("model_type")
    chosen = _class_named(kind, transformers)
    if chosen is None:
        raise unknown_name("type of transformer", kind, transformers.CONFIG_MAPPING.keys())
    fields = _fields(content, chosen, transformers, "")
    try:
        config = chosen.from_dict(fields)
    except Exception as error:
        raise InputError(
            f"this is not a configuration of a {kind}",
            given=first_line(error),
            hint="load this configuration with transformers alone, and mend what that reports",
        ) from error
    for part in _parts(config, transformers):
        # Some classes have a model of timm as the default of a part.
        _refuse_timm(str(getattr(part, "model_type", "")))
    layers = getattr(config, "num_hidden_layers", None)
    if isinstance(layers, int) and layers > _MOST_LAYERS:
        raise InputError(
            "this configuration has more layers than a model that is built from a file may have",
            given=layers,
            allowed=f"up to {_MOST_LAYERS}",
            hint="all layers are alike: predict fewer of them, and multiply",
        )
    return config


def _class_named(kind: object, transformers: Any) -> Any:
    """The class of a type of configuration, of transformers itself; None where it knows none."""
    _refuse_timm(str(kind))
    return transformers.CONFIG_MAPPING[kind] if isinstance(kind, str) and kind in transformers.CONFIG_MAPPING else None


def _refuse_timm(kind: str) -> None:
    if "timm" in kind:
        raise InputError(
            "this configuration builds a model of another library",
            given=f"model_type {kind}",
            allowed="types of transformers itself",
            hint="timm's models have names of their own: timm/resnet26d",
        )


def _fields(content: Mapping[str, Any], chosen: Any, transformers: Any, place: str) -> dict[str, Any]:
    """The fields of a configuration, or of a part of one ("text_config." in messages), that reach the library.

    The class is None where the library decides on it.
    """
    declared = None
    if chosen is not None:
        own = (*inspect.signature(chosen).parameters, *getattr(chosen, "__dataclass_fields__", ()))
        declared = {*own, *chosen.attribute_map, *_OF_ALL}
    parts = getattr(chosen, "sub_configs", {})
    settings: dict[str, Any] = {}
    for name, value in content.items():
        if name in _IGNORED:
            continue
        _refuse_names_of_others(name, value, place)
        if name in ("id2label", "num_labels"):
            settings["num_labels"] = len(value) if isinstance(value, Mapping | list) else value
        elif name in parts and isinstance(value, Mapping):
            part = parts[name]  # or an AutoConfig, where the type of the part decides
            if not issubclass(part, transformers.PretrainedConfig):
                part = _class_named(value.get("model_type"), transformers)
            settings[name] = _fields(value, part, transformers, f"{name}.")
        # Numbers that no class declares do no harm, and some models read them.
        elif not name.startswith("_") and (
            declared is None or name in declared or isinstance(value, int | float | None)
        ):
            settings[name] = _plain(value, f"{place}{name}", 0)
    return settings


def _refuse_names_of_others(name: str, value: Any, place: str) -> None:
    if not value or (isinstance(value, int | float) and not isinstance(value, bool)):
        return
    allowed: tuple[str, ...] = ()
    if name in ("dtype", "torch_dtype") and isinstance(value, str):
        allowed = _TYPES
    elif _NAMES_OTHERS.search(name) is None:
        return
    elif "implementation" in name:
        allowed = _PLAIN_ATTENTION
    if value not in allowed:
        words = "sizes and plain words of a model of transformers itself"
        raise _refused(f"{place}{name}", value, ", ".join(allowed) or words)


def _plain(value: Any, name: str, depth: int) -> Any:
    """A value of which every text is a plain word."""
    if depth > _DEEPEST:
        raise _refused(name, "a value within many others", f"up to {_DEEPEST} levels deep")
    if isinstance(value, str) and not _WORD.fullmatch(value):
        raise _refused(name, value, "a plain word, such as gelu")
    if isinstance(value, Mapping):
        for key, each in value.items():
            _refuse_names_of_others(key, each, f"{name}.")
        return {key: _plain(each, f"{name}.{key}", depth + 1) for key, each in value.items()}
    return [_plain(each, name, depth + 1) for each in value] if isinstance(value, list) else value


def _refused(name: str, value: object, allowed: str) -> InputError:
    return InputError(
        "a configuration from a file may not set this field to such a value: it could name code, files or kernels",
        given=f"{name}={value!r}"[:200],
        allowed=allowed,
        hint=_HINT,
    )


def _parts(config: Any, transformers: Any) -> Iterator[Any]:
    """A configuration and those within it."""
    yield config
    for value in vars(config).values():
        if isinstance(value, transformers.PretrainedConfig):
            yield from _parts(value, transformers)


def model_class_of(config: Any, transformers: Any) -> Any:
    """The class of the model that a configuration describes: the one that it names, or the bare model.

    Raises InputError: transformers itself has no such class.
    """
    named = (config.architectures or [None])[0]
    if named is None and type(config) in transformers.AutoModel._model_mapping:
        return transformers.AutoModel._model_mapping[type(config)]
    model_class = getattr(transformers, str(named), None)
    is_model = inspect.isclass(model_class) and issubclass(model_class, transformers.PreTrainedModel)
    if is_model and model_class.__module__.startswith("transformers.models.") and "timm" not in model_class.__module__:
        return model_class
    raise InputError(
        "transformers has no such class of models",
        given=named or type(config).__name__,
        hint="code that comes with a configuration is not run; build the model yourself and give it as a module",
    )


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
    return without_weights(named("transformer", name, BY_NAME), **options)


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
    plain words are used. Raises InputError: transformers does not know this type of model or this class, a field of the
    content names code, files or another library, or it has too many layers. Raises ExtractionError: the configuration
    does not make a model.
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
        length, most = ids.shape[1] + (cache_length or 0), getattr(module.config, "max_position_embeddings", None)
        # The meta device does not check indices. Rotary positions have no table, and therefore no limit.
        tables = {part.num_embeddings for part in module.modules() if isinstance(part, torch.nn.Embedding)}
        if most in tables and length > most:
            raise InputError("more tokens than the model has positions", given=length, allowed=f"up to {most}")
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


def _cache(forward: Forward, length: int) -> Any:
    """The cache of keys and values after a prefill with this number of tokens."""
    module: Any = forward.module
    ids = forward.kwargs.get("input_ids")
    result = None
    if ids is not None and not getattr(module.config, "is_encoder_decoder", False):
        tokens = Inputs(named=(("input_ids", Input((ids.shape[0], length), "int64")),))
        prefill = type(forward)(module, tokens, forward.precision)
        prefill.kwargs["use_cache"] = True
        result = prefill.record(Recorder(module, Job(whitelist=())))
    cache = getattr(result, "past_key_values", None)
    if cache is None:
        raise InputError(
            "this model has no cache of keys and values",
            given=f"cache_length={length} for {type(module).__name__}",
            hint="leave cache_length out; it is for models that only decode, such as gpt2 or llama3_8b",
        )
    return cache
