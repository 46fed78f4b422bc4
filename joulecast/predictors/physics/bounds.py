"""Lower bounds of device time: the shortest time of a kernel, and the rates of the data sheet.

Predictions that are learned from measurements have errors. They must not be lower than what is certain:

- A kernel takes at least 1.5 to 2 us from its launch to its end, whatever it does.
- It moves its bytes no faster than the memory's bandwidth. (Caches do not help: of 200,000 measured operations of
  NeuSight and Nicolai none moved its bytes more than 9 % faster, not even those that fit into the last cache. Ada, with
  caches of up to 96 MB beside GDDR6, is another matter.)
- It computes its FLOPs no faster than the peak at its clock, but for convolutions whose transforms save
  multiplications.

A bound is a maximum of quantities that grow with the work. Raising a time to it keeps the law that more work never
takes less time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...arrays import FloatArray
from ...hardware import GPU
from ...operations.operation import Operation
from .operation_numbers import numbers_of
from .roofline import peak_flops

# Compute capability -> seconds of the shortest kernels. A100: the shortest layers of language models (vidur2024, 0.1 %
# quantile; linear layers 2.8 us). L40S, B200 and GB200: linear layers (aiconfigurator2026, shortest). H100: between the
# shortest layer, 1 us (vidur2024, in whole microseconds), and the shortest linear layer, 2.5 us.
_KERNEL_S = {8.0: 2.0e-6, 8.9: 1.7e-6, 9.0: 1.5e-6, 10.0: 1.6e-6}
_OTHER_KERNEL_S = 2.0e-6  # MI250X: 2.2 us, its shortest convolution (miopen2024).
# Compute capability -> factor on the memory bandwidth for data that fits into the last cache. Decoding on an L40S,
# which has 96 MB of L2, reaches 4.2 times the memory bandwidth, and 6.6 times without the launch (aiconfigurator2026).
_CACHED_FASTER = {8.9: 6.6}
# Size of data over that of the last cache from which the cache does not help. Below, the time of a byte falls with this
# power of the size, so twice the data take 3.7 times as long at most, and with the power that they draw not over four
# times the energy. Of 7,000 linear layers and attentions on an L40S whose data are 0.8 to 2.8 times the cache, 0.4 %
# are quicker (aiconfigurator2026); with a step at its size, 2.1 % were.
_OUTGROWN, _OUTGROWING = 3.0, 0.9
_WINOGRAD_SAVING = 4.0  # F(4 x 4, 3 x 3): 36 multiplications for 16 outputs of 9 each (Lavin and Gray, CVPR 2016).
_FOURIER_SIDE = 32  # Pixels on each side of the largest transforms that cuDNN uses; see convolutions.py.
# Real multiplications of such a transform: four for each complex one. Real data needs only 17 of 32 columns.
_FOURIER_MULTIPLICATIONS = 4.0 * 32 * 17


class Bounds(NamedTuple):
    """Least seconds of operations on a GPU, as arrays of shape (operations,) or one number for all.

    Args:
        compute_s: Seconds for the FLOPs at the boost clock; they are inversely proportional to the clock.
        fixed_s: Seconds for the bytes, or for the shortest kernels if these take longer; the same at any clock.
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
        least_share = 1.0 / _CACHED_FASTER.get(gpu.generation, 1.0)
        share = np.clip((moved / (_OUTGROWN * gpu.l2_bytes)) ** _OUTGROWING, least_share, 1.0)
        memory_s = moved / gpu.memory_bandwidth * share
        return cls(
            n.flops / _transform_saving(n) / peak_flops(n.precision, gpu),
            np.maximum(memory_s, n.kernels * kernel_floor_s(gpu)),
        )

    def applied(self, device_s: FloatArray, slower: FloatArray | float) -> FloatArray:
        """Device times, raised to the bounds."""
        raised: FloatArray = np.maximum(np.maximum(device_s, self.compute_s * slower), self.fixed_s)
        return raised


NO_BOUNDS = Bounds(0.0, 0.0)


def kernel_floor_s(gpu: GPU) -> float:
    """Seconds of the shortest kernels on a GPU."""
    return _KERNEL_S.get(gpu.generation, _OTHER_KERNEL_S)


def _transform_saving(n: Any) -> Any:
    """The largest factor by which transforms can reduce the multiplications of convolutions; 1 where none applies."""
    outputs = np.maximum(_FOURIER_SIDE + 1 - n.kernel, 1.0)
    fourier = (outputs * n.kernel) ** 2 / _FOURIER_MULTIPLICATIONS
    return np.where(n.transforms > 0, np.maximum(fourier, _WINOGRAD_SAVING), 1.0)
