"""A GPU as kernels meet it: its figures, and which library computes a kernel in which way there."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...hardware import GPU, Boards, full_rates
from ...operations.attributes import ELEMENT_BYTES, HALF_BYTES, PRECISIONS
from ..physics.energy import process_factor
from ..physics.roofline import chosen_clock_mhz, precision_table, reached_bandwidth
from .basis import generation_of
from .work import ATTENTION, DECODING, EXPERTS, PRODUCT, Work

WAYS: tuple[str, ...] = (
    "lanes",
    "tensor cores",
    "triton",
    "tensorrt_llm",
    "each head by itself",
    "cutlass",
    "flash attention 2",
)
"""What computes a kernel: the lanes of a multiprocessor, or its tensor cores as the library at hand uses them."""

LANES, TENSOR_CORES, TRITON, TENSORRT_LLM, EACH_HEAD, CUTLASS, FLASH_2 = range(len(WAYS))

_ELEMENT_BYTES: FloatArray = np.array([ELEMENT_BYTES[precision] for precision in PRECISIONS])
AMPERES, HOPPER, BLACKWELL = "8.0", "9.0", "10.0"
# GPUs without the asynchronous products of Hopper and data-center Blackwell, for which SGLang calls Triton if a model
# has images, attention sinks (heads of 64) or heads of 192. Measured on the L40S (8.9); 12.0 has the same instructions.
_TRITON_OFTEN = ("8.9", "12.0")
_MOST_SHARING = 32  # Measured: groups of 48 heads take 6 to 7 times as long as groups of 32.
# CUDA C++ Programming Guide, throughput of native instructions: the same on all GPUs since Volta. Blackwell Ultra has
# twice as many units (NVIDIA, "Making Softmax More Efficient with NVIDIA Blackwell Ultra").
_EXPONENTIALS, _MORE_EXPONENTIALS = 16.0, {"10.3": 32.0}
_STATIC_SHARE = 0.2  # Share of the power cap that a board draws without work, about.


class Machine(NamedTuple):
    """The figures of a GPU that decide how long kernels take; of several GPUs, columns (`Boards`).

    Args:
        sms: Number of multiprocessors.
        clock_hz: Clock that the board chooses, in Hz: that for which rates are stated, or a higher one.
        flops_per_cycle: FLOPs per cycle and multiprocessor, for each of PRECISIONS, shape (precisions,).
        full_flops_per_cycle: Those that multiprocessors of this kind are built for (`hardware.full_rates`), likewise.
        bandwidth: Bytes per second of the memory, by the data sheet.
        copied: Bytes per second that copies reach. Reading alone, as products of few rows do, comes closer to the data
            sheet where the memory stores its own error correction (0.87 on an L40S, where copies reach 0.76).
        l2_bytes: Bytes of the last cache.
        unit: LANES or TENSOR_CORES for each of PRECISIONS, shape (precisions,).
        generation: Compute capability that the GPU's kernels were made for.
        exponentials: Exponentials per cycle of one multiprocessor.
        logic_power_w: Watts of the default power cap that are left for work, on a chip of a 7 nm process.
    """

    sms: float
    clock_hz: float
    flops_per_cycle: FloatArray
    full_flops_per_cycle: FloatArray
    unit: NDArray[np.int64]
    generation: str
    bandwidth: float
    copied: float
    l2_bytes: float
    exponentials: float
    logic_power_w: float

    @classmethod
    @lru_cache(maxsize=512)
    def of(cls, gpu: GPU) -> Self:
        """The figures of a GPU, whose arrays must not be changed; rates of precisions that it lacks are NaN."""
        if isinstance(gpu, Boards):
            figures: Any = map(np.array, zip(*map(cls.of, gpu.each), strict=True))
            return cls(*(each if each.ndim > 1 else each[:, None] for each in figures))
        full, running = full_rates(gpu), gpu.running_precision
        units = np.nan_to_num(precision_table(gpu, gpu.on_tensor_cores)).astype(np.int64)
        return cls(
            sms=float(gpu.sms),
            clock_hz=chosen_clock_mhz(gpu) * 1e6,
            flops_per_cycle=precision_table(gpu, lambda precision: gpu.flops_per_cycle(running(precision))),
            full_flops_per_cycle=precision_table(gpu, lambda precision: full[running(precision)]),
            unit=units,
            generation=generation_of(gpu),
            bandwidth=gpu.memory_bandwidth,
            copied=reached_bandwidth(gpu),
            l2_bytes=float(gpu.l2_bytes),
            exponentials=_MORE_EXPONENTIALS.get(gpu.compute_capability, _EXPONENTIALS),
            logic_power_w=gpu.power_limit_w * (1 - _STATIC_SHARE) / process_factor(gpu),
        )

    def of_kernels(self, gpus: NDArray[np.intp]) -> Self:
        """The figures that tiles meet, shape (kernels,), given the index of each kernel's GPU; or those of one GPU."""
        if np.ndim(self.sms) == 0:
            return self
        met: Any = {name: getattr(self, name)[gpus, 0] for name in ("sms", "exponentials", "generation")}
        return self._replace(**met)


def way(work: Work, machine: Machine) -> NDArray[np.int64]:
    """Index into WAYS for each kernel, shape (..., kernels).

    Measured by aiconfigurator (commit 095f58a), which names the kernels that were called. SGLang, like PyTorch, calls
    FlashAttention or FlashInfer, and Triton where these do not support an operation. TensorRT-LLM has kernels of its
    own; before Blackwell, its decoding shares keys among 2 to 32 heads, and for other groups each head reads its keys
    by itself. Experts are computed by Triton, but where FlashInfer was asked for.
    """
    found = machine.unit[..., work.precision]
    generation, trt, flashinfer = machine.generation, work.asked_of("tensorrt_llm"), work.asked_of("flashinfer")
    own = work.asked_of("tensorrt_llm", "vllm", "cudnn")
    attention, decoding = work.group == ATTENTION, work.group == DECODING
    head, width = work.columns / 2, _ELEMENT_BYTES[work.precision]
    narrow, windowed = work.in_bytes < width, work.window < work.span
    often = (head == 64) | (head == 192) | (attention & ((work.causal == 0) | (width < HALF_BYTES)))
    on_hopper = (head == 512) | ((head == 256) & windowed) | (attention & narrow)
    on_blackwell = (head == 192) | (attention & narrow & (head != 128))
    triton = (np.isin(generation, _TRITON_OFTEN) & often) | ((generation == HOPPER) & on_hopper)
    triton = (attention | decoding) & (triton | ((generation == BLACKWELL) & on_blackwell)) & ~own
    triton = triton | ((work.group == EXPERTS) & ~flashinfer)
    alone = decoding & trt & ((work.sharing == 1) | (work.sharing > _MOST_SHARING)) & (generation != BLACKWELL)
    found = np.where((attention | decoding | (work.group == PRODUCT)) & trt, TENSORRT_LLM, found)
    found = np.where(alone, EACH_HEAD, found)
    # FlashInfer calls CUTLASS for experts on Hopper, and kernels of TensorRT-LLM on Blackwell.
    found = np.where((work.group == EXPERTS) & flashinfer & (generation == HOPPER), CUTLASS, found)
    found = np.where(triton & (found != LANES), TRITON, found)
    by_pytorch = work.asked_of("pytorch", "triton") | ((generation == AMPERES) & ~own)
    ways: NDArray[np.int64] = np.where(attention & by_pytorch & (width == HALF_BYTES), FLASH_2, found)
    return ways
