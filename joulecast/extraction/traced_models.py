"""Traces a module with the further inputs that its kind of model needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..operations.inputs import Inputs
from ..operations.network import Network
from .job import Assumptions, Job

if TYPE_CHECKING:
    import torch

    from .recorder import Recorder


def traced(
    module: torch.nn.Module,
    inputs: Inputs,
    job: Job,
    name: str | None = None,
    on_trace: Callable[[Recorder], None] | None = None,
) -> Network:
    """Trace a module on inputs that replace those of the job; for `name` and `on_trace` see `tracing.trace`.

    Transformers, and detectors in training, get the further inputs that they need.
    """
    from .adapters import is_detector, prepare_training
    from .models.transformers_models import is_transformer, named_inputs, prepare
    from .tracing import trace

    if job.lora is not None:
        from .adapters import adapt

        adapt(module, job.lora, job.lora_targets)
    name = name or type(module).__name__
    traces = _autocast(job.autocast)(partial(trace, module, **job.for_trace, on_trace=on_trace))
    if is_transformer(module):
        title = name if job.cache_length is None else f"{name} after {job.cache_length} tokens"
        further = partial(prepare, mode=job.mode, cache_length=job.cache_length)
        return traces(input_shape=named_inputs(module, inputs), name=title, prepare=further)
    if job.cache_length is not None:
        raise InputError(
            "only transformers have a cache of keys and values",
            given=f"cache_length={job.cache_length} for {name}",
            hint="leave out cache_length",
        )
    if job.mode == "training" and is_detector(module):
        return traces(
            input_shape=inputs, name=name, prepare=partial(prepare_training, boxes=Assumptions.of(job.assume).boxes)
        )
    return traces(input_shape=inputs, name=name)


@contextmanager
def _autocast(precision: str | None) -> Iterator[None]:
    """Autocast for CUDA in this thread, which torch.autocast itself refuses on machines without a GPU."""
    if precision is None:
        yield
        return
    import torch

    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16 if precision == "bf16" else torch.float16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def configured(config: Any, inputs: Inputs, job: Job) -> Network:
    """Build the transformer of a configuration without weights, and trace it; for the arguments see `traced`."""
    from .models.transformers_models import from_config

    return traced(from_config(config), inputs, job)
