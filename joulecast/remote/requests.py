"""Requests to a service: how the client converts the library's arguments to JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..hardware import GPU, find_gpu, gpus
from ..hardware.host import USUAL, Host, find_host, hosts
from ..operations.inputs import Inputs, shape_to_json
from ..operations.network import Network

if TYPE_CHECKING:
    from ..extraction.assumptions import Assume


def gpu_name(gpu: str | GPU | None) -> str:
    """The name of a GPU that is given by name or as an object.

    Raises:
        InputError: No GPU is given, or one with figures of its own, which the service would take for its namesake.
    """
    if isinstance(gpu, str):
        return gpu
    found = find_gpu(gpu)
    if gpus().get(found.name) != found:
        raise InputError(
            "a service predicts the GPUs of its own catalogue only",
            given=f"{found.name} with figures of its own",
            allowed="a name of the catalogue; `joulecast gpus` lists them",
            hint="predict without a service: joulecast.predict takes such a GPU",
        )
    return found.name


def gpu_names(gpus: str | GPU | Iterable[str | GPU] | None) -> list[str] | None:
    """The names of GPUs that are given by names or as objects; None for the whole catalogue."""
    return None if gpus is None else [gpu_name(gpu) for gpu in ([gpus] if isinstance(gpus, str | GPU) else gpus)]


def tariff(
    price_per_hour: float | Mapping[str, float] | None, price_per_kwh: float | None, carbon: float | str | None
) -> dict[str, Any]:
    """The prices of GPUs and electricity, and the carbon intensity of the grid."""
    return {
        "price_per_hour": dict(price_per_hour) if isinstance(price_per_hour, Mapping) else price_per_hour,
        "price_per_kwh": price_per_kwh,
        "carbon": carbon,
    }


def run(execution: str, host: str | float | Path | Host | None) -> dict[str, Any]:
    """Execution and host of a job. A profile of a host is read here, because the service needs only its factor."""
    found = find_host(host)
    return {"execution": execution, "host": found.name if found is USUAL or found.name in hosts() else found.factor}


def choices(
    gpus: str | GPU | Iterable[str | GPU] | None,
    clocks: float | Iterable[float] | None,
    precision: str | Sequence[str],
    batch_sizes: Iterable[int] | None,
) -> dict[str, Any]:
    """The GPUs, clocks, precisions and batch sizes to compare, as lists."""
    return {
        "gpus": gpu_names(gpus),
        "clocks_mhz": None if clocks is None else list(clocks) if isinstance(clocks, Iterable) else [clocks],
        "precision": precision if isinstance(precision, str) else list(precision),
        "batch_sizes": None if batch_sizes is None else list(batch_sizes),
    }


def subject(
    model: Any,
    input_shape: Any,
    mode: str,
    cache_length: int | None,
    optimizer: str | None,
    assume: Assume | None,
    model_options: Mapping[str, object] | None,
) -> dict[str, Any]:
    """The part of a request that describes the model. Models that need torch have to be extracted before.

    Raises:
        InputError: The model is not a name, a Network or a list of operations.
    """
    if isinstance(model, str):
        shape = shape_to_json(Inputs.of(input_shape).shape) if input_shape is not None else None
        return {
            "model": model,
            "input_shape": shape,
            "mode": mode,
            "cache_length": cache_length,
            "optimizer": optimizer,
            "assume": dict(assume) if assume else None,
            "model_options": dict(model_options) if model_options else None,
        }
    content = _network(model).to_dict()
    described = {name: content[name] for name in ("operations", "name", "input_shape", "dropped", "assumptions")}
    # A service refuses an optimizer with operations, as the library does.
    return {**described, "mode": mode, **({} if optimizer is None else {"optimizer": optimizer})}


def one_of_many(model: Any) -> dict[str, Any]:
    """One of many networks: a name, or operations.

    Raises:
        InputError: The model is not a name, a Network or a list of operations.
    """
    if isinstance(model, str):
        return {"model": model}
    content = _network(model).to_dict()
    return {name: content[name] for name in ("operations", "name", "dropped")}


def _network(model: Any) -> Network:
    if isinstance(model, Network):
        return model
    if not isinstance(model, Sequence):
        raise InputError(
            "a service cannot be sent this model",
            given=type(model).__name__,
            allowed="a name, a Network, a list of (Operation, count)",
            hint="joulecast.extract(model, input_shape) makes a Network of it",
        )
    return Network.of(model)
