"""A transformer through ONNX Runtime: predicting needs no torch, and loading runs no code."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ..formats.runtime import import_onnxruntime
from .onnx import INPUTS, OUTPUTS, transformer_to_onnx
from .weights import TransformerWeights


class Encoder(Protocol):
    """A transformer over tokens; see `OperationTransformer.forward`."""

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
        """Its weights as a file.

        Raises:
            ZooError: It was not trained, but read from a file.
        """
        ...


class OnnxEncoder:
    """A transformer that is evaluated by ONNX Runtime.

    Args:
        weights: Weights as they were stored.

    Raises:
        ZooError: This ONNX Runtime does not take it.
    """

    def __init__(self, weights: TransformerWeights) -> None:
        self._weights = weights
        self._alone = _session(weights, alone=True)

    def to_bytes(self) -> bytes:
        """Refuse: what is stored already is pulled or copied as an entry.

        Raises:
            ZooError: Always.
        """
        raise ZooError("only a predictor that was just trained can be stored", given=type(self).__name__)

    @cached_property
    def _together(self) -> Any:
        # Made when it is asked for: operations alone are what most questions are about.
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
            ZooError: ONNX Runtime cannot: such as for want of memory, with networks of ten thousands of operations.
        """
        given = dict(zip(INPUTS, (values, families, kinds, shares), strict=True))
        session = self._alone if families.shape[1] == 1 else self._together
        try:
            operations, networks = session.run(list(OUTPUTS), given)
        except Exception as error:
            raise _refused(error) from error
        return operations.astype(np.float64), networks.astype(np.float64)


def _session(weights: TransformerWeights, *, alone: bool) -> Any:
    # Here, because collecting measurements imports joulecast on machines that do without it.
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    # One thread, as for a regressor: threads that wait for each other cost more than they gain.
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # What fails is raised, too.
    model = transformer_to_onnx(weights, alone=alone)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises a class of its own per cause, without a common base
        raise _refused(error) from error


def _refused(error: Exception) -> ZooError:
    onnxruntime = import_onnxruntime()

    return ZooError(
        "ONNX Runtime does not compute this transformer",
        given=f"onnxruntime {onnxruntime.__version__}",
        allowed="1.20 or newer, and memory for the square of a network's length",
        hint=f"use another predictor, or free memory; it said: {str(error).splitlines()[0][:200]}",
    )
