"""Effects of a network: what its operations cost in addition to what they cost alone, or less; one table.

Loops measure single operations, one after the other, on contiguous tensors, with data in the cache. Networks differ.
Each effect is a row: what happens, its number, the measurements behind it, and whether it was confirmed on measurements
that it was not fitted to. An effect that was not confirmed widens the interval of the networks that it changes, by what
it changes. docs/how-it-works.md shows the table; a test compares both.
"""

from __future__ import annotations

from typing import NamedTuple

from ..physics.bandwidth import PRODUCTS_SHARE, READ_SHARE
from ..physics.half_precision import DEPTHWISE_TRAINING
from ..physics.operation_numbers import BATCHED_START_STEPS
from .composition import LEAST_HOST_S
from .execution import COMPILED_CALL_S, COMPILED_LAUNCH_S
from .parts import INPUT_GRADIENT, SLOWER_DEPTHWISE, SLOWER_NORMS


class Effect(NamedTuple):
    """One effect.

    Args:
        name: What it is called.
        physics: What happens, in a sentence.
        value: The number that the code uses, or the key under which a predictor stores what it learned.
        unit: The unit of the number.
        evidence: How many measurements of how many networks on which chips show it.
        fitted_on: What the number was fitted to or chosen on.
        confirmed: Measurements that it was not fitted to, and what they show; empty where there are none.
    """

    name: str
    physics: str
    value: float | str
    unit: str
    evidence: str
    fitted_on: str
    confirmed: str = ""

    @property
    def interval(self) -> str:
        """What the effect means for the interval of a network."""
        if self.confirmed:
            return "errors of networks left out contain it"
        return "none, but where the device decides" if self.fitted_on == "assumed" else "wider by what it changes"


_DEPTHWISE = (
    "networks like ConvNeXt permute images to channels last; cuDNN then computes the gradients of depthwise "
    "convolutions in direct kernels for grouped ones (use_cudnn_depthwise in ATen/native/Convolution.cpp)"
)
_TIMM = "timm's published times in half precision on an RTX 3090"

EFFECTS: tuple[Effect, ...] = (
    Effect(
        "first layer in training",
        "the gradient of the model's input is not computed, one of the three products of a layer",
        -INPUT_GRADIENT,
        "of its work",
        "all networks in training",
        "nothing: counted",
        "torch.utils.flop_counter counts the same",
    ),
    Effect(
        "L2 lost between kernels",
        "in a loop a kernel finds its data in the L2 cache, in a network other kernels ran in between; products in "
        "half precision whose data fit take longer by this factor",
        "in_networks.products",
        "x time",
        "158 runs of 4 networks in bf16, on A100 and A10",
        "all of them",
        "the A100 alone gives 1.23, the A10 1.27; networks of other names",
    ),
    Effect(
        "weights from memory",
        "weights and caches of keys are read at no more than this share of the bandwidth, also where a loop finds them "
        "in the L2 cache",
        READ_SHARE,
        "of the bandwidth at most",
        "18,000 products of few rows and steps of decoding with over twice the cache on L40S and A100",
        "nothing: 99 % of these are slower",
        "physics: a layer comes again after all others",
    ),
    Effect(
        "elements to load",
        "other operations in half precision move half the bytes of fp32, but load as many elements, for which a "
        "multiprocessor takes cycles",
        "in_networks.cycles",
        "cycles per element",
        "120 runs of 4 networks in bf16 on A100; the A10 has too little bandwidth to show it",
        "all of them",
        "networks of other names: mean error of time 4.2 %",
    ),
    Effect(
        "TF32 in inference",
        "operations in TF32 take less than in their loops; the cause is not known",
        "network_tf32_factor",
        "x time and energy",
        "10 networks on A30, 8 of which the device decides",
        "all of them",
        "networks left out by name: time 3.6 to 3.1, energy 4.9 to 4.3 %",
    ),
    Effect(
        "power of a waiting board",
        "boards draw more in networks than their loops explain; leakage of a warmer chip would be a cause",
        "network_static_w",
        "W",
        "20 runs in inference and 28 in training, of 10 networks on A30",
        "all of them",
        "families left out: energy 7.5 to 6.2 % in inference, 6.6 to 6.3 % in training",
    ),
    Effect(
        "host time of a call",
        "modules call modules in a network; in training, a loop starts the autograd engine for every operation",
        "offset_s",
        "s",
        "48 runs of 10 networks on A30, 230 of 4 networks on A100 and A10",
        "all of them",
        "networks left out by name",
    ),
    Effect(
        "copies",
        "PyTorch makes most copies inside other operators, which costs the host a bare launch",
        LEAST_HOST_S,
        "s",
        "bert_large and gpt2 in batches of 1 and 2 on A10",
        "the time of a launch, not these networks",
        "109 copies more take 0.6 ms longer",
    ),
    Effect(
        "transposes spared by channels last",
        "cuDNN computes convolutions in half precision with channels last, and transposes other tensors",
        2.0,
        "passes over input and output",
        "17 networks on RTX 3090; ResNet-50 and EfficientNet-B0 in training on A100 and V100",
        "nothing: counted",
        "timm's networks: error 19.2 to 9.4 % and, held back, 18.8 to 13 %",
    ),
    Effect(
        "batch norm in training in half precision",
        "takes longer with channels first than loops in fp32 show",
        SLOWER_NORMS,
        "x time",
        _TIMM,
        "its first half, 22 networks in training; on 21 others the bias is 0 instead of -7 %, the error 9.7 instead of "
        "9.2 %",
    ),
    Effect(
        "depthwise convolutions in training in half precision",
        "cuDNN is bound by memory, except for the gradient of the weight",
        DEPTHWISE_TRAINING,
        "x least time",
        _TIMM,
        "its first half, 7 networks",
        "its other half, 8 networks: error 9.3 % (with 4.5, which is better on the first half, 16 %)",
    ),
    Effect(
        "convolutions where tensor cores are sold with a lower rate",
        "what kernels lose beside the products takes as many cycles as at the rate that multiprocessors are built for",
        PRODUCTS_SHARE,
        "of the time at that rate is products",
        "convolutions on A10, which has the full rate, take 1.6 to 1.9 times their least time",
        "4 networks in bf16 on A100 and A10",
        "timm's networks on RTX 3090, first half: inference 10.7 to 6.7 %, training 11.1 to 10.2 %",
    ),
    Effect(
        "start of batched products in fp32",
        "starting a block of 128 x 128 takes as long as some steps of the reduction",
        float(BATCHED_START_STEPS),
        "steps",
        "bmm kernels on A100 (neusight2025): 30 to 90 steps",
        "swin_t, swin_b and swin_v2_t on A30, within what the kernels show",
        "bmm kernels, which bound it",
    ),
    Effect(
        "channels last in training, TF32",
        _DEPTHWISE,
        SLOWER_DEPTHWISE["tf32"],
        "x time of depthwise convolutions",
        "1 run of convnext_base on A30",
        "this run",
    ),
    Effect(
        "channels last in training, fp32",
        _DEPTHWISE,
        SLOWER_DEPTHWISE["fp32"],
        "x time of depthwise convolutions",
        "1 run of convnext_base on A30",
        "this run",
    ),
    Effect(
        "entering compiled code",
        "compiled code checks whether it fits the inputs",
        COMPILED_CALL_S,
        "s",
        "small networks on a CPU: 40 to 70 µs",
        "assumed",
    ),
    Effect(
        "launches from compiled code",
        "the launcher is generated for this network",
        COMPILED_LAUNCH_S,
        "s",
        "a CPU: 0.7 of an operation of eager PyTorch",
        "assumed",
    ),
)
