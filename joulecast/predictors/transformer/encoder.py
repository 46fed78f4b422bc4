"""A transformer through ONNX Runtime: predicting needs no torch, and loading runs no code."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError
from ...system.damage import first_line
from ..formats.runtime import import_onnxruntime
from .onnx import INPUTS, OUTPUTS, transformer_to_onnx
from .weights import TransformerWeights


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
        raise ZooError(
            "only a predictor that was just trained can be stored",
            given=type(self).__name__,
            allowed="a transformer in torch, as `fit_transformer` returns it",
            hint="copy the folder of the entry that it was read from",
        )

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
            raise _refused(error) from error
        return operations.astype(np.float64), networks.astype(np.float64)


def _session(weights: TransformerWeights, *, alone: bool) -> Any:
    # Imported here, because machines that only collect measurements do not need ONNX Runtime.
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    # One thread, as for a regressor: threads that wait for each other cost more than they gain.
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # Fatal errors only: all others are raised as exceptions, too.
    model = transformer_to_onnx(weights, alone=alone)
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has a class for each cause, and these have no common base.
        raise _refused(error) from error


def _refused(error: Exception) -> ZooError:
    onnxruntime = import_onnxruntime()

    return ZooError(
        "ONNX Runtime cannot compute this transformer",
        given=f"onnxruntime {onnxruntime.__version__}: {first_line(error)}",
        allowed="onnxruntime 1.20 or newer, and memory that grows with the square of a network's length",
        hint="use another predictor, or free memory",
    )
