"""A transformer through ONNX Runtime: predicting needs no torch, and loading runs no code."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ..formats import onnx
from ..regressors.serving import not_trained
from .onnx import INPUTS, OUTPUTS, transformer_to_onnx
from .weights import TransformerWeights

_WHAT = (
    "this transformer",
    "onnxruntime 1.20 or newer, and memory that grows with the square of a network's length",
    "use another predictor, or free memory",
)


class Encoder(Protocol):
    """A trained transformer over tokens; see `OperationTransformer.forward`."""

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
        /,
    ) -> tuple[FloatArray, FloatArray]:
        """Log ratios of operations, shape (sequences, operations, 2), and vectors of networks, (sequences, numbers).

        Args:
            values: Tokens, shape (sequences, operations, len(ROLES), WIDTH).
            families: Family of each operation, shape (sequences, operations).
            kinds: Kind of each operation, shape (sequences, operations).
            shares: Share of each operation in its network's device time, shape (sequences, operations).
        """
        ...

    def to_bytes(self) -> bytes:
        """The weights as the bytes of a file.

        Raises:
            ZooError: It was not trained, but read from a file.
        """
        ...


class OnnxEncoder:
    """A transformer that is evaluated by ONNX Runtime.

    Args:
        weights: Weights as they were stored.

    Raises:
        ZooError: The installed ONNX Runtime refuses the transformer.
    """

    def __init__(self, weights: TransformerWeights) -> None:
        self._weights = weights
        self._alone = _session(weights, alone=True)

    def to_bytes(self) -> bytes:
        """Refuse: a transformer that was read from a file is copied with its zoo entry, not stored anew.

        Raises:
            ZooError: Always.
        """
        raise not_trained(self, "a transformer in torch, as `fit_transformer` returns it")

    @cached_property
    def _together(self) -> Any:
        # Made on first use, because most callers ask for operations by themselves only.
        return _session(self._weights, alone=False)

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> tuple[FloatArray, FloatArray]:
        """See `Encoder`.

        Raises:
            ZooError: ONNX Runtime failed. With tens of thousands of operations in a network it may lack memory.
        """
        given = dict(zip(INPUTS, (values, families, kinds, shares), strict=True))
        session = self._alone if families.shape[1] == 1 else self._together
        try:
            operations, networks = session.run(list(OUTPUTS), given)
        except Exception as error:
            raise onnx.refused(error, *_WHAT) from error
        return operations.astype(np.float64), networks.astype(np.float64)


def _session(weights: TransformerWeights, *, alone: bool) -> Any:
    return onnx.session(transformer_to_onnx(weights, alone=alone), *_WHAT)
