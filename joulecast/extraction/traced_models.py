"""Traces a module with what its kind of model needs besides: further inputs, low-rank adapters, a region of autocast.

Low-rank adapters (LoRA; Hu et al., arXiv 2106.09685) are put into models that were built by name, as peft adds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from ..errors import InputError
from ..operations.inputs import Inputs, require_positive_integer
from ..operations.network import Network
from .job import Assumptions, Job
from .known_values import without_memory
from .models.transformers_models import is_transformer, named_inputs, prepare
from .recorder import Recorder
from .tracing import Forward, trace

ALL_LINEAR = "all-linear"
"""The word of peft for adapters in every linear layer but the last one of the model."""

# The attention's layers that peft adapts unless it is told otherwise (peft/utils/constants.py,
# TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING); the first group of which the model has layers is taken.
_BY_DEFAULT = (
    ("q_proj", "v_proj"),
    ("query", "value"),
    ("qkv_proj",),
    ("query_key_value",),
    ("c_attn",),
    ("q_lin", "v_lin"),
    ("q", "v"),
)


class Adapted(nn.Module):
    """A frozen layer, beside which two learned ones of low rank compute what is added to its result.

    It is a linear layer, or the transposed one of GPT-2 in transformers (`Conv1D`).
    """

    def __init__(self, base: nn.Module, rank: int) -> None:
        super().__init__()
        weight: torch.Tensor = base.weight  # type: ignore[assignment]
        outputs, inputs = weight.shape if isinstance(base, nn.Linear) else reversed(weight.shape)
        where = {"device": weight.device, "dtype": weight.dtype}
        self.base_layer = base
        self.lora_A = nn.Linear(inputs, rank, bias=False, **where)
        self.lora_B = nn.Linear(rank, outputs, bias=False, **where)
        self.scaling = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The layer's result and what the adapter adds to it."""
        result: torch.Tensor = self.base_layer(x) + self.lora_B(self.lora_A(x)) * self.scaling
        return result


def adapt(module: nn.Module, rank: int, targets: str | Sequence[str] | None = None) -> None:
    """Freeze all parameters of a module and put adapters of this rank into some of its layers.

    The targets are last names of layers, such as ("q_proj", "v_proj"), or "all-linear"; None for peft's default. Raises
    InputError: the rank is not a positive integer, or the module has no such layers.
    """
    require_positive_integer("lora", rank)
    layers = {
        path: each
        for path, each in module.named_modules()
        if isinstance(each, nn.Linear) or type(each).__name__ == "Conv1D"
    }
    present = {path.rpartition(".")[2] for path in layers}
    if targets == ALL_LINEAR:
        chosen = set(list(layers)[:-1])
    else:
        named = (targets,) if isinstance(targets, str) else targets
        groups = _BY_DEFAULT if named is None else (tuple(named),)
        wanted = next((group for group in groups if set(group) <= present), ())
        chosen = {path for path in layers if path.rpartition(".")[2] in wanted}
    if not chosen:
        raise InputError(
            f"{type(module).__name__} has no layers for these adapters",
            given="peft's default targets" if targets is None else str(targets),
            allowed=", ".join(sorted(present)) or "a model with linear layers",
            hint=f"give lora_targets, or {ALL_LINEAR!r}",
        )
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    for path in chosen:
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, Adapted(layers[path], rank))


def _is_detector(module: nn.Module) -> bool:
    """Whether a module is one of torchvision's detectors, or of a class derived from one."""
    theirs = any(cls.__module__.startswith("torchvision.models.detection") for cls in type(module).__mro__)
    return theirs and hasattr(module, "transform")


def _with_targets(forward: Forward, boxes: int | None) -> None:
    """Give each image of a detector's batch boxes to train on, if there are any."""
    if boxes is not None and forward.args:
        forward.kwargs["targets"] = [_target(forward.module, forward.args[0], boxes) for _ in forward.args[0]]


def _target(module: nn.Module, images: torch.Tensor, boxes: int) -> dict[str, torch.Tensor]:
    """The targets of one image: boxes of a quarter of its sides, along its diagonal."""
    height, width = images.shape[-2:]
    sides = torch.tensor([width, height, width, height])
    first = torch.linspace(0.0, 0.75, boxes)[:, None]
    corners = torch.cat([first, first, first + 0.25, first + 0.25], dim=1) * sides
    target: dict[str, Any] = {"boxes": corners, "labels": torch.ones(boxes, dtype=torch.int64)}
    heads = getattr(module, "roi_heads", None)
    if getattr(heads, "mask_predictor", None) is not None:
        target["masks"] = torch.zeros(boxes, height, width, dtype=torch.uint8)
    if (predictor := getattr(heads, "keypoint_predictor", None)) is not None:
        target["keypoints"] = torch.ones(boxes, predictor.out_channels, 3)
    return {name: without_memory(value) for name, value in target.items()}


def traced(
    module: nn.Module,
    inputs: Inputs,
    job: Job,
    name: str | None = None,
    on_trace: Callable[[Recorder], None] | None = None,
) -> Network:
    """Trace a module on inputs that replace those of the job; for `name` and `on_trace` see `tracing.trace`.

    Transformers, and detectors in training, get the further inputs that they need.
    """
    if job.lora is not None:
        adapt(module, job.lora, job.lora_targets)
    name = name or type(module).__name__
    further = None
    if is_transformer(module):
        inputs, further = named_inputs(module, inputs), partial(prepare, mode=job.mode, cache_length=job.cache_length)
        name = name if job.cache_length is None else f"{name} after {job.cache_length} tokens"
    elif job.cache_length is not None:
        raise InputError(
            "only transformers have a cache of keys and values",
            given=f"cache_length={job.cache_length} for {name}",
            hint="leave out cache_length",
        )
    elif job.mode == "training" and _is_detector(module):
        further = partial(_with_targets, boxes=Assumptions.of(job.assume).boxes)
    with _autocast(job.autocast):
        return trace(module, inputs, job, name, further, on_trace)


@contextmanager
def _autocast(precision: str | None) -> Iterator[None]:
    """Autocast for CUDA in this thread, which torch.autocast itself refuses on machines without a GPU."""
    if precision is None:
        yield
        return
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_dtype("cuda", torch.bfloat16 if precision == "bf16" else torch.float16)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
