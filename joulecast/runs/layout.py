"""Layout: how a step of training is divided over GPUs, nodes, micro-batches and stages."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from typing import Any

from ..errors import InputError, unknown_name
from ..generation.parallel import require_group
from ..operations.inputs import require_positive_integer

SHARDINGS = ("none", "zero1", "zero2", "zero3")
"""What replicas divide among each other (Rajbhandari et al., ZeRO, arXiv 1910.02054): nothing, as
DistributedDataParallel; the state of the optimizer; gradients, too; and parameters, too, as FSDP's FULL_SHARD."""

RECOMPUTES = ("none", "selective", "full")
"""What the backward computes again: nothing; attention (Korthikanti et al., arXiv 2205.05198); each layer."""

IN_A_LAYER = re.compile(r"(?:^|\.)(\d+)(?:\.|$)")
"""A module inside of one of the repeated layers of a model, by its path."""

NODE_GPUS = 8
"""GPUs of a node, unless the user says otherwise: as in DGX and HGX servers since V100."""


@dataclass(frozen=True)
class Layout:
    """How a step is divided.

    Args:
        gpus: Number of GPUs.
        tensor_parallel: GPUs that share each layer.
        context_parallel: GPUs that share each sequence, and pass keys and values around (ring attention).
        expert_parallel: GPUs over which whole experts are distributed, out of all that a stage has.
        pipeline_parallel: Stages into which the layers are divided.
        virtual_stages: Parts of the layers that each stage has (interleaved 1F1B; Narayanan et al., arXiv 2104.04473).
        accumulation: Micro-batches of a replica in a step, which follow each other.
        sharding: What replicas divide among each other, one of `SHARDINGS`.
        recompute: What the backward computes again, one of `RECOMPUTES`.
        gpus_per_node: Most GPUs of a node.
    """

    gpus: int
    tensor_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_stages: int = 1
    accumulation: int = 1
    sharding: str = "none"
    recompute: str = "none"
    gpus_per_node: int = NODE_GPUS

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name not in ("sharding", "recompute")):
            require_positive_integer(name, getattr(self, name))
        if self.sharding not in SHARDINGS:
            raise unknown_name("sharding", self.sharding, SHARDINGS, hint="zero3 is FSDP's FULL_SHARD")
        if self.recompute not in RECOMPUTES:
            raise unknown_name("way to recompute", self.recompute, RECOMPUTES)
        require_group("tensor_parallel", self.tensor_parallel)
        of_replica = self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        of_experts = self.expert_parallel * self.pipeline_parallel
        if self.gpus % of_replica or self.gpus % of_experts:
            raise InputError(
                "the GPUs cannot be divided so",
                given=f"{self.gpus} GPUs, tensor_parallel={self.tensor_parallel}, "
                f"context_parallel={self.context_parallel}, pipeline_parallel={self.pipeline_parallel}, "
                f"expert_parallel={self.expert_parallel}",
                allowed=f"a multiple of {math.lcm(of_replica, of_experts)} GPUs",
                hint="give another number of GPUs, or other parts",
            )

    @property
    def replicas(self) -> int:
        """Number of replicas, which share the batch."""
        return self.sharers // self.context_parallel

    @property
    def sharers(self) -> int:
        """GPUs with the same parameters, whose gradients are added up: of all replicas and parts of sequences."""
        return self.gpus // (self.tensor_parallel * self.pipeline_parallel)

    @property
    def expert_gpus(self) -> int:
        """GPUs over which experts are distributed: at least those that share the other layers."""
        return max(self.expert_parallel, self.tensor_parallel)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return math.ceil(self.gpus / self.gpus_per_node)

    def shares(self, what: str) -> int:
        """Over how many GPUs a part of a replica's state is divided: "moments", "gradients" or "parameters"."""
        divided = SHARDINGS.index(self.sharding) > ("moments", "gradients", "parameters").index(what)
        return self.sharers if divided else 1

    def micro_shape(self, input_shape: Any) -> tuple[int, ...]:
        """The shape of a micro-batch. Raises InputError: the batch is no multiple of replicas times micro-batches.

        Args:
            input_shape: Shape of the input of all replicas and micro-batches of a step together, batch first.
        """
        try:
            batch, *rest = (int(each) for each in input_shape)
        except (TypeError, ValueError):
            raise InputError(
                "a run has one input, with a shape",
                given=repr(input_shape)[:100],
                allowed="such as (32, 512)",
                hint="give input_shape=(32, 512), say",
            ) from None
        parts = self.replicas * self.accumulation
        if batch < 1 or batch % parts:
            raise InputError(
                "the batch of a step cannot be divided into replicas and micro-batches",
                given=f"{batch} samples for {self.replicas} replicas with {self.accumulation} micro-batches each",
                allowed=f"a multiple of {parts}",
                hint="give another batch, number of GPUs or accumulation",
            )
        if self.context_parallel > 1 and (len(rest) != 1 or rest[0] % self.context_parallel):
            raise InputError(
                "the sequences cannot be divided over the GPUs",
                given=f"input shape {tuple(input_shape)}, context_parallel={self.context_parallel}",
                allowed=f"(samples, tokens), with a multiple of {self.context_parallel} tokens",
                hint="give other lengths or another context_parallel",
            )
        return (batch // parts, *(rest if self.context_parallel == 1 else [rest[0] // self.context_parallel]))
