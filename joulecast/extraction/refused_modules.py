"""Modules that cannot be traced as they are, and what to give instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ..errors import InputError


def refuse_module(module: torch.nn.Module) -> None:
    """Refuse modules that hide their operators, run on several GPUs, or do not know their sizes yet.

    Raises:
        InputError: The module or one of its submodules is such a module; the message says what to give instead.
    """
    for path, part in module.named_modules():
        for is_such, what, hint in _REFUSED:
            if is_such(part):
                where = f" at {path}" if path else ""
                raise InputError(what, given=f"{type(part).__name__}{where}", hint=hint)


def _is_wrapped_for_several_gpus(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel)


def _is_script(module: torch.nn.Module) -> bool:
    return isinstance(module, torch.jit.ScriptModule)


def _is_compiled(module: torch.nn.Module) -> bool:
    return hasattr(module, "_orig_mod") and hasattr(module, "dynamo_ctx")


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
        _is_wrapped_for_several_gpus,
        "this module spreads a batch over several GPUs",
        "give what it wraps, model.module, with the share of the batch that one GPU gets",
    ),
    (_is_script, "TorchScript hides which operators a module runs", "give the original module, before torch.jit"),
    (_is_compiled, "a compiled module hides which operators it runs", "give the original module, model._orig_mod"),
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
