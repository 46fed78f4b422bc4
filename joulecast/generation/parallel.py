"""How a decoder is divided over the GPUs of a node, and names of several GPUs such as "2x H100 SXM".

Tensor parallelism (Shoeybi et al., Megatron-LM, arXiv 1909.08053) gives each GPU some heads and features of every
layer. After each block, the GPUs sum up their results. Expert parallelism gives each GPU whole experts instead. Without
tensor parallelism beside it, each GPU has all other layers and sequences of its own, and sends their tokens to the GPUs
that have the chosen experts and back (data-parallel attention; DeepSeek-V3, arXiv 2412.19437, section 3.4). Replicas
share nothing; each of them serves a part of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ..checked import in_range
from ..errors import InputError
from ..hardware import GPU, find_gpu, gpu_name_notes, gpus
from ..hardware.catalogue import COUNTED, find_machine
from . import decoder as parts
from .decoder import Decoder

GROUPS = (1, 2, 4, 8)
"""Numbers of GPUs that can share a model: those for which collectives were measured, within a node."""


def _is_group(gpus: object) -> bool:
    return type(gpus) is int and gpus in GROUPS


def require_group(name: str, gpus: object) -> None:
    """Refuse a number of GPUs that no collective was measured for."""
    if not _is_group(gpus):
        raise InputError(
            "GPUs share a model in groups whose collectives were measured",
            given=f"{name}={gpus!r:.60}",
            allowed=", ".join(map(str, GROUPS)),
            hint="give one of these numbers",
        )


@dataclass(frozen=True)
class Parallel:
    """How a model is divided."""

    tensor: int = 1  # Number of GPUs that share each layer
    # Number of GPUs over which whole experts are distributed; 1 if tensor parallelism divides each expert. If both are
    # above 1, they are equal.
    expert: int = 1
    replicas: int = 1  # Number of copies of the model, each on GPUs of its own
    link: str = "nvlink"  # The connection between the GPUs of a replica: "nvlink" or "pcie"

    def __str__(self) -> str:
        parts = [f"TP {self.tensor}"] if self.tensor > 1 else []
        if self.expert > 1:
            parts.append(f"EP {self.expert}" if self.tensor > 1 else f"EP {self.expert} with DP attention")
        if self.replicas > 1:
            parts.append(f"{self.replicas} replicas")
        return ", ".join(parts) or "one GPU"

    @property
    def gpus(self) -> int:
        """Number of all GPUs."""
        return self.tensor * self.groups

    @property
    def senders(self) -> int:
        """Number of groups of GPUs in a replica that have sequences of their own; they send tokens to each other."""
        return max(1, self.expert // self.tensor)

    @property
    def groups(self) -> int:
        """Number of groups of GPUs that have sequences of their own, in all replicas."""
        return self.senders * self.replicas


ALONE = Parallel()
"""A single GPU with the whole model."""


def find_gpus(name: str | Path | GPU | None) -> tuple[int, GPU]:
    """Find GPUs by a name with a number, and return the number and the GPU model: "2x H100 SXM" are two."""
    if not isinstance(name, str):
        return 1, find_gpu(name)
    count, single = split_count(name)
    return count, find_gpu(single)


def split_count(name: str) -> tuple[int, str]:
    """Split "2x H100 SXM" into the number and the name; the number is 1 if there is none.

    A cloud's machine, such as "p5.48xlarge", is as many boards as it has.
    """
    machine = find_machine(name)
    if machine is not None:
        return machine.boards, machine.gpu
    counted = COUNTED.fullmatch(name)
    if counted is None:
        return 1, name
    return int(in_range("the number of GPUs", int(counted[1]), 1)), counted[2]


def counted_name_notes(name: str | Path | GPU | None) -> tuple[str, ...]:
    """A warning for GPUs that were named by their family, with or without a number: which boards they are taken for."""
    number, single = split_count(name) if isinstance(name, str) else (1, name)
    return (gpu_name_notes(name) if number == 1 else ()) or gpu_name_notes(single)


def compared(names: str | GPU | Iterable[str | GPU] | None, counts: Iterable[int]) -> list[tuple[int, GPU]]:
    """GPUs that are compared, each with its number, once.

    `names`: Names, aliases or files, with or without a number; None for the whole catalogue.
    """
    found, numbers = [], [int(in_range("the number of GPUs", each, 1, whole=True)) for each in counts]
    for name in [names] if isinstance(names, str | GPU) else (gpus().values() if names is None else names):
        number, gpu = find_gpus(name)
        found += [(count, gpu) for count in (numbers if number == 1 else (number,))]
    return list(dict.fromkeys(found))


def boards_of(count: int, gpu: GPU | str) -> str:
    """GPUs with their number, such as "2x NVIDIA H200"."""
    name = gpu if isinstance(gpu, str) else gpu.name
    return f"{count}x {name}" if count > 1 else name


def layouts(count: int, gpu: GPU, decoder: Decoder) -> Iterator[Parallel]:
    """All ways to use GPUs for a model, those in which more GPUs share its layers first."""
    for tensor in reversed(GROUPS):
        for expert in (GROUPS if tensor == 1 else (1, tensor)) if decoder.experts else (1,):
            if count % max(tensor, expert) == 0:
                found = find_parallel(count, gpu, tensor, expert)
                try:
                    share(decoder, found)
                except InputError:
                    continue
                yield found


def find_parallel(count: int, gpu: GPU, tensor: int, expert: int) -> Parallel:
    """How GPUs are used: as replicas of as many GPUs as tensor parallelism needs.

    `count`: Number of GPUs; 1 stands for as many as one replica needs.
    `tensor`: Number of GPUs that share each layer.
    """
    require_group("tensor_parallel", tensor)
    if not _is_group(expert) or (tensor > 1 and expert not in (1, tensor)):
        raise InputError(
            "experts are distributed over the GPUs that share the other layers, or each GPU has all other layers",
            given=f"expert_parallel={expert!r}, tensor_parallel={tensor}",
            allowed=f"1 or {tensor}" if tensor > 1 else ", ".join(map(str, GROUPS)),
            hint=f"give tensor_parallel={expert!r} or 1" if _is_group(expert) else "give another expert_parallel",
        )
    group = max(tensor, expert)
    if count != 1 and count % group:
        raise InputError(
            "the number of GPUs is not enough for whole replicas",
            given=f"{count} GPUs, tensor_parallel={tensor}, expert_parallel={expert}",
            allowed=f"a multiple of {group}",
            hint="give another number of GPUs, or 1 for as many as a replica needs",
        )
    replicas = max(1, count // group)
    return Parallel(tensor, expert, replicas, gpu.link(group))


def share(decoder: Decoder, parallel: Parallel) -> Decoder:
    """The parts of a decoder on one GPU of a replica.

    Raises InputError: the heads, features or experts are no multiple of the number of GPUs.
    """
    if parallel.tensor == parallel.expert == 1:
        return decoder
    if parallel.expert > 1 and not decoder.experts:
        raise InputError(
            f"{decoder.name} has no experts",
            given=f"expert_parallel={parallel.expert}",
            allowed="1",
            hint='use tensor_parallel, or replicas, such as gpu="2x H100 SXM"',
        )
    shared = {part: _shared(part, parallel, decoder.name) for part, _ in decoder.parts}
    # If there are fewer key heads than GPUs, several GPUs hold the same head.
    repeated = {_qkv(part): _qkv(own) for part, own in shared.items() if isinstance(part, parts.Attention)}

    def of(part: parts.Part) -> parts.Part:
        if isinstance(part, parts.Projection) and part.outputs in repeated and part.division == "columns":
            return replace(part, outputs=repeated[part.outputs])
        return shared[part]

    return replace(decoder, parts=tuple((of(part), modules) for part, modules in decoder.parts))


def _qkv(part: parts.Part) -> int:
    """Output features of the projection to queries, keys and values together."""
    return part.heads * part.key_size + part.cached_elements if isinstance(part, parts.Attention) else 0


def _shared(part: parts.Part, parallel: Parallel, name: str) -> parts.Part:
    count, expert = parallel.tensor, parallel.expert

    def divided(what: str, whole: int, over: int = count) -> int:
        if whole % over:
            fitting = [each for each in GROUPS if whole % each == 0]
            raise InputError(
                f"the {what} of {name} cannot be divided over the GPUs",
                given=f"{whole} {what} over {over} GPUs",
                allowed=f"tensor_parallel of {', '.join(map(str, fitting))}",
                hint=f"give tensor_parallel={fitting[-1]}",
            )
        return whole // over

    match part:
        case parts.Projection(division="columns"):
            return replace(part, outputs=part.outputs // count)
        case parts.Projection(division="rows"):
            return replace(part, inputs=part.inputs // count)
        case parts.Logits():
            return replace(part, vocabulary=math.ceil(part.vocabulary / count))
        case parts.Norm(divided=True):
            return replace(part, rows=math.ceil(part.rows / count))
        case parts.Attention():
            heads, held = divided("query heads", part.heads), part.cached_heads
            cached = 1 if count % held == 0 else divided("key heads", held)
            return replace(part, heads=heads, cached_heads=max(cached, held // count))
        case parts.LatentAttention() | parts.Encoding():
            return replace(part, heads=divided("query heads", part.heads))
        case parts.Recurrence():
            return replace(part, heads=divided("heads of a recurrent state", part.heads))
        case parts.Activation():
            return replace(part, size=divided("features of a feed-forward block", part.size))
        case parts.Experts() if expert > 1:
            divided("experts", part.experts, expert)
            return replace(part, expert_parallel=expert)
        case parts.Experts():
            divided("features of an expert", part.intermediate)
            return replace(part, tensor_parallel=count)
    return part
