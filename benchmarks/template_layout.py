"""Recording a forward together with how its tensors lie in memory, which costs templates of image pipelines time.

Extraction counts elements, wherever they lie. What addresses them costs is known of the kernels of PyTorch that
denoisers run alone (`generation/images/layers.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from joulecast.extraction import tracing
from joulecast.extraction.conversions import Bound
from joulecast.extraction.known_values import tensors_in
from joulecast.extraction.recorder import Recorder


class LayoutRecorder(Recorder):
    """A recorder that also knows which calls read elements in another order than the one in which they lie in memory.

    `across` has the places of these calls: of an operator with several, that of the first.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.across: set[int] = set()

    def _computed(self, operator: str, bound: Bound) -> tuple[str, ...]:
        # Each operator with a kind comes by here, with its arguments and its result, before its calls are recorded.
        if operator and _reads_across(operator, bound):
            self.across.add(len(self.calls))
        return super()._computed(operator, bound)


@contextmanager
def recording_layout() -> Iterator[None]:
    """Within this context, forwards are traced by a `LayoutRecorder`."""
    tracing.Recorder = LayoutRecorder  # type: ignore[misc]
    try:
        yield
    finally:
        tracing.Recorder = Recorder  # type: ignore[misc]


def _reads_across(operator: str, bound: Bound) -> bool:
    """Whether an operator reads elements that do not lie side by side in memory one after the other.

    It joins tensors whose dimensions lie in another order, or reads one that has another order than its result.
    """
    result = bound["<output>"]
    read = tensors_in([value for name, value in bound.items() if name != "<output>"])
    if not isinstance(result, torch.Tensor) or all(each.is_contiguous() for each in (*read, result)):
        return False
    if operator == "cat":
        return any(_order(each) != sorted(_order(each)) for each in read)
    alike = (each for each in read if each.ndim == result.ndim and each.numel() == result.numel())
    return any(_order(each)[-1:] != _order(result)[-1:] for each in alike)


def _order(tensor: torch.Tensor) -> list[int]:
    """The dimensions with more than one element in memory, from the one along which these lie farthest apart."""
    strides = tensor.stride()
    return sorted((i for i, n in enumerate(tensor.shape) if n > 1 and strides[i]), key=lambda i: -strides[i])
