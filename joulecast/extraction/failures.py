"""Error messages for a forward that raises, and modules that are refused before they run.

A message has what PyTorch said, where it was raised, and what may help.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ..errors import ExtractionError, InputError
from ..operations.inputs import Inputs, shape_text
from .known_values import LARGEST, NeedsValuesError

if TYPE_CHECKING:
    from .job import Job
    from .recorder import Recorder

LONGEST = 300
"""Most characters of another library's message that are shown."""

_CHECK_DIMENSIONS = "check the dimensions; a model that needs the values of tensors cannot be extracted"
_LEAVES_PYTORCH = (
    "the forward takes values out of PyTorch (.numpy(), .tolist(), float(x)), and extraction cannot follow them: "
    "write that part in PyTorch, or extract only the part before it"
)
# Text in the message of PyTorch -> what to do about it.
_HINTS: Mapping[str, str] = {
    "missing": "give every input: a list of shapes, or a dictionary of names and shapes",
    "positional argument": "give as many shapes as the model has inputs, or a dictionary of names and shapes",
    "unexpected keyword": "name the inputs as the model's forward does",
    "targets should not be none": "a detector trains on lists of boxes, which a shape cannot describe: "
    "assume={'boxes': 20} gives each image as many",
    "fake impl": "register one with torch.library.register_fake, so that its shapes are known",
    **dict.fromkeys(
        ("Index", "indices"),
        "give an example tensor of the right type in place of its shape, such as torch.empty(8, 16, dtype=torch.int64) "
        'for indices; the command line takes the file of joulecast.extract(model, tensor).save("net.json")',
    ),
    **dict.fromkeys(("meta tensor", "meta device type tensor", "unallocated storage", "data pointer"), _LEAVES_PYTORCH),
    **dict.fromkeys(
        ("CUDA", "NVIDIA"),
        "the forward asks for a GPU by itself: move tensors to that of another, tensor.to(x.device)",
    ),
}
_STATE_VALUES = (
    "state what only the input says: assume={'experts': 'uniform'} for a mixture of experts, assume={'boxes': 100} "
    "for what is selected, with 'box_side': 100 for masks and key points"
)
_TAKE_OUT = (
    "take decisions by values out of the forward (layers skipped by chance: layerdrop=0), or extract what comes before "
    "them, such as a backbone"
)


def explained(error: Exception, name: str, recorder: Recorder, inputs: Inputs, job: Job) -> ExtractionError:
    """Convert an exception of a forward to an error that says where it was raised and what to do."""
    where = f"{name}.{recorder.path}" if recorder.path else name
    what = next(iter(str(error).strip().splitlines()), "no message")[:LONGEST]
    within = f" in {recorder.operator}" if recorder.operator else ""
    most = hint = None
    if isinstance(error, NeedsValuesError) and any(math.prod(each.shape) >= LARGEST for each in inputs.all):
        most = f"fewer than {LARGEST:,} tokens, because not even positions are followed in more"
        hint = "give fewer tokens"
    elif isinstance(error, NeedsValuesError):
        hint = _TAKE_OUT if "box_side" in (job.assume or ()) else f"{_STATE_VALUES}; or {_TAKE_OUT}"
    # Each of several numbers is read as an input with one dimension.
    sizes = [size for each in inputs.positional for size in each.shape]
    if not hint and 1 < len(sizes) == len(inputs.positional) and not inputs.named:
        hint = f"did you mean one input of {'x'.join(map(str, sizes))}? Spaces separate inputs"
    return ExtractionError(
        f"{name} does not run on this input: {where} raised {type(error).__name__}{within}: {what}",
        given=shape_text(inputs.shape),
        allowed=most,
        hint=hint or next((each for sign, each in _HINTS.items() if sign in what), _CHECK_DIMENSIONS),
    )


def refuse_module(module: torch.nn.Module) -> None:
    """Refuse modules that hide their operators, run on several GPUs, or do not know their sizes yet."""
    for path, part in module.named_modules():
        for is_such, what, hint in _REFUSED:
            if is_such(part):
                where = f" at {path}" if path else ""
                raise InputError(what, given=f"{type(part).__name__}{where}", hint=hint)


def _is_lazy(module: torch.nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(isinstance(tensor, UninitializedParameter | UninitializedBuffer) for tensor in tensors)


def _is_for_integers_on_cpus(module: torch.nn.Module) -> bool:
    cls = type(module)
    is_theirs = cls.__module__.startswith(("torch.ao.nn.quantized.", "torch.ao.nn.intrinsic.quantized."))
    # models that are prepared for quantization contain these two
    return is_theirs and cls.__name__ not in ("FloatFunctional", "FXFloatFunctional")


_REFUSED: Sequence[tuple[Callable[[torch.nn.Module], bool], str, str]] = (
    (
        lambda module: isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel),
        "this module spreads a batch over several GPUs",
        "give what it wraps, model.module, with the share of the batch that one GPU gets",
    ),
    (
        lambda module: isinstance(module, torch.jit.ScriptModule),
        "TorchScript hides which operators a module runs",
        "give the original module, before torch.jit",
    ),
    (
        lambda module: hasattr(module, "_orig_mod") and hasattr(module, "dynamo_ctx"),
        "a compiled module hides which operators it runs",
        "give the original module, model._orig_mod",
    ),
    (
        _is_lazy,
        "a lazy module has no sizes before its first input",
        "run it once on a small input, model(torch.zeros(shape)), and give it then",
    ),
    (
        # Their operators (quantized::linear_dynamic) have kernels for CPUs and, by default, none for CUDA.
        _is_for_integers_on_cpus,
        "PyTorch runs this quantized module on CPUs only",
        "give the model as it was before torch.ao.quantization; for integers on a GPU, list its products as "
        "operations, such as Operation('linear', [(32, 128)], {'out_features': 64}, precision='int8')",
    ),
)
"""Modules that are refused: the test, the message, and the hint what to do instead."""
