"""What no operation can beat: the launch of its kernels on the device, and the data sheet.

What is learned from measurements errs, and where it errs towards too little it would contradict what is certain:

- A kernel takes 1 to 2 us from its launch to its end, whatever it does.
- It moves its bytes no faster than the memory's bandwidth. (Caches do not help: of 200,000 measured operations of
  NeuSight and Nicolai none moved its bytes more than 9 % faster, not even those that fit into the last cache. Ada, with
  caches of up to 96 MB beside GDDR6, is another matter.)
- It computes its FLOPs no faster than the peak at its clock, but for convolutions whose transforms save
  multiplications, and attention, where a mask says what to leave out.

Bounds are maxima of quantities that grow with the work, so they keep the laws that hold without them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from .attention_sizes import attention_sizes
from .operation_numbers import numbers_of
from .roofline import peak_flops

# Seconds of the shortest kernels by compute capability. A100: the shortest layers of language models (vidur2024, 0.1 %
# quantile; linear layers 2.8 us). L40S, B200 and GB200: linear layers (aiconfigurator2026, shortest). H100: between the
# shortest layer, 1 us (vidur2024, in whole microseconds), and the shortest linear layer, 2.5 us.
_KERNEL_S = {8.0: 2.0e-6, 8.9: 1.7e-6, 9.0: 1.5e-6, 10.0: 1.6e-6}
_OTHER_KERNEL_S = 2.0e-6  # MI250X: 2.2 us, its shortest convolution (miopen2024).
# Times the bandwidth of the memory, for what fits into the last cache: decoding on an L40S with its 96 MB of L2 reaches
# 4.2 times it, and 6.6 times with the launch taken off (aiconfigurator2026).
_CACHED_FASTER = {8.9: 6.6}
_WINOGRAD_SAVING = 4.0  # F(4 x 4, 3 x 3): 36 multiplications for 16 outputs of 9 each (Lavin and Gray, CVPR 2016).
_FOURIER_SIDE = 32  # Pixels of the largest transforms that cuDNN takes; see convolutions.py.
_FOURIER_MULTIPLICATIONS = 4.0 * 32 * 17  # Complex ones (four real), of half of the frequencies.


class Bounds(NamedTuple):
    """Least seconds of operations on a GPU, one value each.

    Args:
        compute_s: For their FLOPs at the boost clock; they scale with the clock.
        fixed_s: For their bytes, and for launching their kernels on the device, at any clock.
    """

    compute_s: FloatArray | float
    fixed_s: FloatArray | float

    @classmethod
    def of(cls, operations: Sequence[Operation], gpu: GPU) -> Bounds:
        """The bounds of operations on a GPU.

        Raises:
            InputError: An operation's precision does not exist on the GPU.
        """
        n = numbers_of(operations)
        moved = n.bytes_read + n.bytes_written
        faster = np.where(moved < gpu.l2_bytes, _CACHED_FASTER.get(gpu.generation, 1.0), 1.0)
        memory_s = moved / (gpu.memory_bandwidth * faster)
        return cls(
            n.flops / _transform_saving(n) / _masked_saving(operations) / peak_flops(n.precision, gpu),
            np.maximum(memory_s, n.kernels * kernel_floor_s(gpu)),
        )

    def applied(self, device_s: FloatArray, slower: FloatArray | float) -> FloatArray:
        """Device times, raised to what is possible.

        Args:
            device_s: Seconds of the same operations.
            slower: The boost clock over the clock that they hold at, one for all operations or one for each.
        """
        raised: FloatArray = np.maximum(np.maximum(device_s, self.compute_s * slower), self.fixed_s)
        return raised


NO_BOUNDS = Bounds(0.0, 0.0)


def kernel_floor_s(gpu: GPU) -> float:
    """Seconds that the shortest kernel takes on a GPU."""
    return _KERNEL_S.get(gpu.generation, _OTHER_KERNEL_S)


def _transform_saving(n: Any) -> Any:
    """How many times fewer multiplications convolutions need at most, where transforms may compute them; else 1."""
    outputs = np.maximum(_FOURIER_SIDE + 1 - n.kernel, 1.0)
    fourier = (outputs * n.kernel) ** 2 / _FOURIER_MULTIPLICATIONS
    return np.where(n.transforms > 0, np.maximum(fourier, _WINOGRAD_SAVING), 1.0)


def _masked_saving(operations: Sequence[Operation]) -> FloatArray:
    """How many times fewer FLOPs masked attention computes than are counted, which are those of all pairs; else 1."""
    return OperationList.of(operations).derived(_pairs_counted_over_computed)


def _pairs_counted_over_computed(operations: OperationList) -> FloatArray:
    saving = np.ones(len(operations))
    places = [place for place, operation in enumerate(operations) if operation.kind == "attention"]
    if places:
        some = OperationList(operations[place] for place in places)
        counted = np.array([operation.forward_flops for operation in some], dtype=float)
        saving[places] = np.maximum(counted / attention_sizes(some).flops, 1.0)
    saving.flags.writeable = False
    return saving
