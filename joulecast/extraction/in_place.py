"""Backwards that PyTorch refuses, because the forward wrote in place into what they need.

Each write raises the version of the memory that a tensor shares with its views. A backward is refused if it needs a
tensor of an earlier version. What operators need that are not in the tables here is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import torch

from ..errors import ExtractionError
from ..operations.rules import Shape
from .conversions import Bound, shape_of

# Which tensors the backward of an operator needs: its result, its first argument, or each of two factors for the
# gradient of the other one (torch/csrc/autograd/generated/Functions.h).
_RESULT = frozenset(
    """
    relu sigmoid tanh exp sqrt rsqrt reciprocal softmax log_softmax amax amin std linalg_vector_norm norm lstm gru
    rnn_tanh rnn_relu leaky_relu_ elu_
    """.split()  # noqa: SIM905 (one name per line would hide what they have in common)
)
_FIRST = frozenset(
    """
    log abs sin cos erf pow square silu gelu hardswish hardsigmoid hardtanh leaky_relu elu mish softplus clamp prelu glu
    layer_norm group_norm batch_norm amax amin std var linalg_vector_norm norm max_pool2d avg_pool2d conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention
    """.split()  # noqa: SIM905
)
_FACTORS = {
    "mul": ("self", "other"),
    "div": ("self", "other"),
    **dict.fromkeys(("mm", "bmm"), ("self", "mat2")),
    "addmm": ("mat1", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "linear": ("input", "weight"),
}


class Memory:
    """What a tensor and its views share: the shape of the whole, and how often and by what it was written in place.

    `written` is the edge of the whole once an operator that needs a gradient wrote to it.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape, self.is_leaf = shape, False
        self.written: Any = None
        self.version, self.writer = 0, ""

    @classmethod
    def of(cls, tensor: Any) -> Self:
        """The memory of a tensor, which is an attribute of it."""
        if not hasattr(tensor, "memory"):
            tensor.memory = cls(shape_of(tensor))
        made: Self = tensor.memory
        return made


class Saved(NamedTuple):
    """A tensor that the backward of an operator needs, in this version of its memory."""

    operator: str
    memory: Memory
    version: int


def saved(name: str, bound: Bound, result: Any, needed: Callable[..., bool]) -> Iterator[Saved]:
    """What the backward of an operator needs, before its write is counted.

    `needed` says whether the backward runs through an operator with these arguments.
    """
    plain = name.removesuffix("_")
    tensors: list[Any] = [next(iter(bound.values()))] if plain == name and name in _FIRST else []
    if plain in _FACTORS:
        first, second = (bound.get(each) for each in _FACTORS[plain])
        # An operator in place keeps a copy of what it writes to.
        tensors += [first] if plain == name and needed(second) else []
        tensors += [second] if needed(first) or plain == "div" else []
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            yield Saved(name, Memory.of(tensor), Memory.of(tensor).version)
    if name in _RESULT or plain in _RESULT:
        memory = Memory.of(result if isinstance(result, torch.Tensor) else result[0])
        yield Saved(name, memory, memory.version + (plain != name))


def write(func: Any, bound: Bound, path: str, *, needed: bool) -> None:
    """Count the writes of an operator in place, which the module with this path runs and which may need a gradient.

    Raises ExtractionError: PyTorch refuses to differentiate this write, whatever comes after it.
    """
    name = func.overloadpacket.__name__
    where = f"{name} in {path}" if path else name
    for argument in func._schema.arguments:
        tensor = bound.get(argument.name)
        if not (argument.alias_info and argument.alias_info.is_write and isinstance(tensor, torch.Tensor)):
            continue
        memory = Memory.of(tensor)
        if memory.is_leaf and torch.is_grad_enabled():
            raise _refused(where, "it writes into a learned tensor", "write to learned tensors in torch.no_grad()")
        if needed and getattr(tensor, "is_one_of_several", False):
            raise _refused(where, "it writes into one of the views that split or unbind made", "write into a slice")
        memory.version += 1
        memory.writer = where


def refuse_overwritten(needed: Iterable[Saved]) -> None:
    """Raise ExtractionError if one of the tensors that a backward needs was overwritten."""
    for operator, memory, version in needed:
        if memory.version != version:
            raise _refused(memory.writer, f"it overwrites what the backward of {operator} needs", "write x = x + y")


def _refused(where: str, what: str, instead: str) -> ExtractionError:
    return ExtractionError(
        f"PyTorch refuses the backward of this model: {what}",
        given=where,
        allowed="in training, operators in place on tensors that no backward needs",
        hint=f"{instead} there, or give mode='inference'",
    )
