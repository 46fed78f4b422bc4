"""Configurations of transformers from files: sizes and plain words reach the library, and nothing else does.

A config.json comes from strangers. Some of its fields name code, files, kernels or models of other libraries, which
transformers would load: `auto_map`, `backbone`, `attn_implementation`, the arguments of timm. A file may therefore set
only the fields that the class of its configuration declares, to numbers and plain words; and only classes of
transformers itself are built.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import InputError, unknown_name

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

    Raises:
        InputError: transformers has no such type of model; a field names code, files or another library; a value does
            not fit; or the model has too many layers.
    """
    kind = content.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise unknown_name("type of transformer", kind, transformers.CONFIG_MAPPING.keys())
    _refuse_timm(kind)
    chosen = transformers.CONFIG_MAPPING[kind]
    fields = _fields(content, chosen, transformers, "")
    try:
        config = chosen.from_dict(fields)
    except Exception as error:
        raise InputError(
            f"this is not a configuration of a {kind}",
            given=next(iter(str(error).strip().splitlines()), type(error).__name__),
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
    found: dict[str, Any] = {}
    for name, value in content.items():
        if name in _IGNORED:
            continue
        _refuse_names_of_others(name, value, place)
        if name in ("id2label", "num_labels"):
            found["num_labels"] = len(value) if isinstance(value, Mapping | list) else value
        elif name in parts and isinstance(value, Mapping):
            found[name] = _fields(value, _class_of_part(parts[name], value, transformers), transformers, f"{name}.")
        # Numbers that no class declares do no harm, and some models read them.
        elif not name.startswith("_") and (
            declared is None or name in declared or isinstance(value, int | float | None)
        ):
            found[name] = _plain(value, f"{place}{name}", 0)
    return found


def _class_of_part(declared: Any, value: Mapping[str, Any], transformers: Any) -> Any:
    """The class of a part of a configuration; None where only the library knows it."""
    if issubclass(declared, transformers.PretrainedConfig):
        return declared
    kind = value.get("model_type")
    if isinstance(kind, str):
        _refuse_timm(kind)
    return transformers.CONFIG_MAPPING[kind] if isinstance(kind, str) and kind in transformers.CONFIG_MAPPING else None


def _refuse_names_of_others(name: str, value: Any, place: str) -> None:
    if not value or (isinstance(value, int | float) and not isinstance(value, bool)):
        return
    if name.endswith("dtype") and isinstance(value, str) and value not in _TYPES and name in _OF_ALL:
        raise _refused(f"{place}{name}", value, ", ".join(_TYPES))
    if _NAMES_OTHERS.search(name) is None:
        return
    if "implementation" not in name:
        raise _refused(f"{place}{name}", value, "sizes and plain words of a model of transformers itself")
    if value not in _PLAIN_ATTENTION:
        raise _refused(f"{place}{name}", value, ", ".join(_PLAIN_ATTENTION))


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
    found = getattr(transformers, str(named), None)
    is_model = inspect.isclass(found) and issubclass(found, transformers.PreTrainedModel)
    if is_model and found.__module__.startswith("transformers.models.") and "timm" not in found.__module__:
        return found
    raise InputError(
        "transformers has no such class of models",
        given=named or type(config).__name__,
        hint="code that comes with a configuration is not run; build the model yourself and give it as a module",
    )
