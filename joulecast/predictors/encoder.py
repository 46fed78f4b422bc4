"""A transformer through ONNX Runtime: predicting needs no torch, and loading runs no code."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..errors import ZooError
from .features import FloatArray
from .onnx_check import check_onnx
from .tokens import ROLES, WIDTH

Encoder = Callable[
    [NDArray[np.float32], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]], tuple[FloatArray, FloatArray]
]
"""Maps tokens of shape (sequences, operations, len(ROLES), WIDTH), and per operation its family, its kind and its share
in the network, to log ratios of operations, shape (sequences, operations, 2), and vectors of networks, shape
(sequences, numbers); see `OperationTransformer.forward`."""

INPUTS: tuple[str, ...] = ("values", "families", "kinds", "shares")
OUTPUTS: tuple[str, ...] = ("operations", "networks")
"""Names of what a stored transformer takes and gives, in the order of `Encoder`."""


class OnnxEncoder:
    """A transformer that is stored as ONNX.

    Args:
        model: The serialized model.

    Raises:
        ZooError: The bytes are no such model.
    """

    def __init__(self, model: bytes) -> None:
        # Here, because collecting measurements imports joulecast on machines that do without it.
        import onnxruntime

        check_onnx(model, {"values": 4, "families": 2, "kinds": 2, "shares": 2}, frozenset(OUTPUTS))
        options = onnxruntime.SessionOptions()
        # One thread, as for a regressor: threads that wait for each other cost more than they gain.
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime raises a class of its own per cause, without a common base
            raise ZooError("a stored transformer is no ONNX model", hint=str(error).splitlines()[0]) from error
        taken = {each.name: each.shape[2:] for each in self._session.get_inputs()}
        if taken != {"values": [len(ROLES), WIDTH], "families": [], "kinds": [], "shares": []}:
            raise ZooError(
                "a stored transformer wants other inputs than these",
                given=taken,
                allowed=f"{', '.join(INPUTS)}, with tokens of {len(ROLES)} x {WIDTH}",
            )

    def __call__(
        self,
        values: NDArray[np.float32],
        families: NDArray[np.int64],
        kinds: NDArray[np.int64],
        shares: NDArray[np.float32],
    ) -> tuple[FloatArray, FloatArray]:
        """See `Encoder`."""
        given = dict(zip(INPUTS, (values, families, kinds, shares), strict=True))
        operations, networks = self._session.run(list(OUTPUTS), given)
        return operations.astype(np.float64), networks.astype(np.float64)
