"""Several GPUs that share the tokens of an image or a video (sequence parallelism), as xDiT runs denoisers.

Each GPU has all weights and computes its part of the tokens. Attention needs all of them. Ulysses (Jacobs et al.,
arXiv 2309.14509) exchanges tokens for heads before attention and back afterwards; a ring (Liu et al., arXiv
2310.01889) passes keys and values on, and adds up what they contribute to each query (github.com/xdit-project/xDiT).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...errors import InputError
from ...hardware import GPU
from ...operations.entry import Entry
from ...operations.network import Network
from ...operations.operation import Operation
from ...operations.rules import size
from ...predictors.networks.prepared import PreparedNetwork
from ...predictors.operation_predictions import OperationPredictions
from ..collectives import KINDS, with_collectives
from ..parallel import require_group
from ..run_energy import denoising_j, with_joules
from .layers import JOINED, Layers, Shape, strided_cycles

_EXCHANGE_HOST_S = 300e-6
_SEND_HOST_S = 150e-6
"""Seconds for which exchanging tokens for heads, or sending keys on, keeps the host: a call of torch.distributed and
the Python around it. Set with batches of one image of FLUX.1 on 8 GPUs, which the host decides: 96 ms a step by
Ulysses and 160 ms by a ring, on H100 and B200 alike. Of models that were left out, batches of one image (SD 3.5 and
SANA on 4 and 8 GPUs) come out 7 % too slow, with a mean absolute error of 10 % (benchmarks/IMAGES.md)."""


class DividedNetwork(PreparedNetwork):
    """One GPU's part of a network, with its collectives."""

    @cached_property
    def at_default(self) -> OperationPredictions:
        """Predictions of the operations at the default clock, those of collectives included."""
        gpu = self.knowledge.operations.gpu
        strided = strided_cycles(self.network, gpu.sms)
        at_default = super().at_default
        cycles = np.array([strided.get(operation, 0.0) for operation in at_default.operations])
        found = with_collectives(at_default.loading(cycles), gpu)
        found = with_joules(found, gpu, denoising_j(found.operations, found.device_time_s, gpu))
        hosts = {kind: _EXCHANGE_HOST_S if kind == "all_to_all" else _SEND_HOST_S for kind in KINDS}
        of_each = [hosts.get(operation.kind, math.nan) for operation in found.operations]
        return replace(found, host_time_s=np.where(np.isnan(of_each), found.host_time_s, of_each))


@dataclass(frozen=True)
class Split:
    """How GPUs share the tokens."""

    ulysses: int = 1  # Number of GPUs that exchange tokens for heads
    ring: int = 1  # Number of groups of such GPUs that pass keys and values on
    link: str = "nvlink"  # The connection between the GPUs: "nvlink" or "pcie"

    @classmethod
    def of(cls, gpus: int, ulysses: int | None, ring: int | None, heads: int, gpu: GPU) -> Split:
        """The degrees that were asked for; where none was, the largest group that can share the heads.

        A denoiser of no heads cannot be shared.
        """
        require_group("gpus", gpus)
        if ulysses is None:
            ulysses = gpus // ring if ring and not gpus % ring else math.gcd(gpus, heads)
        ring = max(1, gpus // ulysses) if ring is None else ring
        if ulysses * ring != gpus or heads % ulysses or gpus > 1 > heads:
            most = math.gcd(gpus, heads)
            raise InputError(
                "the GPUs cannot share the attention in these degrees",
                given=f"ulysses={ulysses} x ring={ring} on {gpus} GPUs, {heads} heads",
                allowed="ulysses x ring is the number of GPUs, and the heads are a multiple of ulysses",
                hint=f"give ulysses={most}, ring={gpus // most}" if heads else "give one GPU, or another model",
            )
        return cls(ulysses, ring, gpu.link(gpus))

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.ulysses * self.ring

    def grid(self, whole: Shape) -> Shape:
        """One GPU's part of the patches: some rows of an image, or some patches of a video."""
        if self.gpus == 1:
            return whole
        if len(whole) == 2:
            return (-(-whole[0] // self.gpus), whole[1])
        return (1, 1, -(-math.prod(whole) // self.gpus))

    def text_tokens(self, whole: int) -> int:
        """Tokens of the text that each GPU computes: its part, or all of them if they cannot be divided."""
        return whole if whole % self.gpus else whole // self.gpus

    def network(self, part: Network, tokens: int, text_tokens: int) -> Network:
        """One GPU's part of a denoiser with the attention over all tokens, and with collectives.

        `tokens` are those of the image or video that one GPU computes, and `text_tokens` all of the text's.
        """
        if self.gpus == 1:
            return part
        found = Layers(part.entries[-1].operation.precision)
        for entry in part:
            # xDiT joins text and image before heads and tokens change places, as they lie in memory.
            paths = [path.removesuffix(f".{JOINED}") for path, n in entry.by_module.items() for _ in range(n)]
            operation = entry.operation
            if operation.kind == "attention":
                self._attention(found, entry, tokens, text_tokens % self.gpus != 0)
                continue
            found.calls.setdefault(operation, []).extend(paths)
            if operation.kind == "conv2d" and entry.count > 1:
                self._bordering(found, operation, entry.count)
            if operation.kind == "matmul" and operation.input_shapes[0][-1] == tokens:
                # Linear attention: the first product of each block, values times keys, sums over tokens.
                keys = operation.input_shapes[1]
                self._exchanged(found, keys, keys, keys, entry.count)
        result = next(e.operation.output_shape for e in reversed(part.entries) if e.operation.kind == "linear")
        self._collective(found, "all_gather", result, 1)
        return replace(part, entries=found.entries)

    def _attention(self, found: Layers, entry: Entry, tokens: int, text_whole: bool) -> None:
        """Record an attention of the whole sequence: exchanges, one part for each member of the ring, and their sum."""
        queries, keys = entry.operation.input_shapes[:2]
        calls = entry.count

        def all_of(shape: Shape, text: int) -> Shape:
            own = text if text_whole else 0
            return (shape[0], shape[1] // self.ulysses, (shape[2] - own) * self.ulysses + own, shape[3])

        wide = all_of(queries, max(0, queries[2] - tokens))
        read = wide if keys == queries else all_of(keys, keys[2])
        self._exchanged(found, queries, keys, read, calls)
        found.add("attention", "attention", wide, read, read, each=calls * self.ring)
        if self.ring > 1:
            self._merge(found, wide, calls)

    def _bordering(self, found: Layers, operation: Operation, calls: int) -> None:
        """Record what a convolution over neighbouring rows adds: each GPU gets a row of two others, and computes it."""
        (images, channels, _, width), attributes = operation.input_shapes[0], operation.attributes
        wide = attributes["out_channels"] > channels  # The layer before a depthwise convolution is computed as well.
        depthwise = attributes["groups"] > 1
        if depthwise or wide:
            shape = (images, channels, 3 if depthwise else 1, width)
            found.add("border", "conv2d", shape, each=2 * calls, **attributes)
        if depthwise:
            row = (images, channels, 1, width)
            found.add("border", "add", row, row, each=2 * calls)
        elif wide:
            self._collective(found, "all_gather", (images * width, channels), 2 * calls, 2)

    def _exchanged(self, found: Layers, queries: Shape, keys: Shape, read: Shape, calls: int) -> None:
        """Record exchanging tokens for heads, there and back, and passing the keys and values that are read on."""
        if self.ulysses > 1:
            for shape in (queries, keys, keys, queries):
                found.add("attention", "copy", shape, each=2 * calls)
                self._collective(found, "all_to_all", shape, calls, self.ulysses)
        if self.ring > 1:
            # Keys and values go to the next GPU, as in a pair that exchanges them.
            self._collective(found, "all_gather", read, 2 * calls * (self.ring - 1), 2)

    def _merge(self, found: Layers, shape: Shape, calls: int) -> None:
        """Record adding up, in fp32, what the members of the ring contribute, by their logarithms of sums."""
        steps, row = calls * (self.ring - 1), (*shape[:-1], 1)
        found.wide.add("attention", "copy", shape, each=calls * self.ring)
        for kind, shapes, each in (
            ("sub", (shape, shape), 2),
            ("mul", (shape, row), 1),
            ("sub", (row, row), 3),
            ("sigmoid", (row,), 2),
        ):
            found.wide.add("attention", kind, *shapes, each=steps * each)
        found.add("attention", "copy", shape, each=calls)

    def _collective(self, found: Layers, kind: str, shape: Shape, calls: int, gpus: int | None = None) -> None:
        flat = (max(1, size(shape) // shape[-1]), shape[-1])
        found.add("collectives", kind, flat, each=calls, gpus=gpus or self.gpus, link=self.link)


ONE_GPU = Split()
"""A single GPU, which computes everything."""
