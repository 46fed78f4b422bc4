"""What a decoder consists of, as engines see it: parts that are each one fused kernel, or a few.

Sizes are those of the whole model; `sharding` divides them over GPUs, and `steps` turns them into operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

Division = Literal["columns", "rows", "none"]
"""How tensor parallelism divides a weight: its outputs, its inputs (followed by an all-reduce), or not at all."""


@dataclass(frozen=True)
class Embedding:
    """A table of vectors, of which each token looks up one.

    Args:
        rows: Vectors of the table: the vocabulary, or positions.
        size: Elements of a vector.
    """

    rows: int
    size: int

    quantized = False

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return self.rows * self.size


@dataclass(frozen=True)
class Projection:
    """A linear layer; layers that read the same input are one.

    Args:
        inputs: Features that it reads.
        outputs: Features that it gives.
        bias: Whether a bias is added.
        division: How tensor parallelism divides it.
        quantized: Whether engines quantize it when the model is served in fp8 or nvfp4.
    """

    inputs: int
    outputs: int
    bias: bool = False
    division: Division = "columns"
    quantized: bool = True

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return self.outputs * (self.inputs + self.bias)


@dataclass(frozen=True)
class Logits:
    """The last layer, which engines compute only for the tokens that they sample from.

    Args:
        inputs: Features that it reads.
        vocabulary: Words that it rates.
        bias: Whether a bias is added.
    """

    inputs: int
    vocabulary: int
    bias: bool = False

    quantized = False

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return self.vocabulary * (self.inputs + self.bias)


@dataclass(frozen=True)
class Norm:
    """A normalization; engines add the residual in the same kernel.

    Args:
        kind: "rms_norm" or "layer_norm".
        size: Elements that are normalized together.
        rows: Vectors of this size that each token has: 1, or the number of heads.
        divided: Whether tensor parallelism divides the rows.
    """

    kind: str
    size: int
    rows: int = 1
    divided: bool = False

    quantized = False

    @property
    def parameters(self) -> int:
        """Elements of its weights."""
        return self.size


@dataclass(frozen=True)
class Attention:
    """Attention to a paged cache of keys and values.

    Args:
        heads: Heads of queries.
        cached_heads: Heads of keys and values.
        key_size, value_size: Elements of one key, and of one value, per head.
        window: Keys that a query sees at most, its own among them; None for all.
        rotary: Whether positions turn queries and keys.
    """

    heads: int
    cached_heads: int
    key_size: int
    value_size: int
    window: int | None = None
    rotary: bool = True

    parameters = 0
    quantized = False

    @property
    def cached_elements(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.cached_heads * (self.key_size + self.value_size)


@dataclass(frozen=True)
class LatentAttention:
    """DeepSeek's attention (MLA, arXiv 2405.04434), whose cache is one vector per token for all heads.

    A step of decoding multiplies the queries with the weights that would expand the vector, and the result with those
    of the values ("absorbed"), so that nothing is expanded.

    Args:
        heads: Heads of queries.
        key_size, value_size: Elements of one key, and of one value, per head, when they are expanded.
        latent: Elements of the vector that keys and values are made of.
        turned: Elements of the key that positions turn, which are cached beside it.
    """

    heads: int
    key_size: int
    value_size: int
    latent: int
    turned: int

    @property
    def parameters(self) -> int:
        """Elements of the weights that expand the vector to keys and values."""
        return self.latent * self.heads * (self.key_size - self.turned + self.value_size)

    @property
    def cached_elements(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.latent + self.turned

    window = None
    quantized = False


@dataclass(frozen=True)
class Activation:
    """The activation between the layers of a feed-forward block.

    Args:
        size: Features that it gives.
        gated: Whether half of what it reads is multiplied with the activation of the other half.
    """

    size: int
    gated: bool

    parameters = 0
    quantized = False


@dataclass(frozen=True)
class Experts:
    """A mixture of experts with its choice of experts, without the layer that rates them.

    Args:
        hidden: Features of a token.
        intermediate: Features inside an expert.
        experts: Number of experts.
        top_k: Experts that a token goes to.
        tensor_parallel: GPUs that share the features of each expert.
        expert_parallel: GPUs that the experts are shared out to.
    """

    hidden: int
    intermediate: int
    experts: int
    top_k: int
    tensor_parallel: int = 1
    expert_parallel: int = 1

    quantized = True

    @property
    def parameters(self) -> int:
        """Elements of its weights on one GPU: gate, up and down of each expert."""
        whole = 3 * self.experts * self.hidden * self.intermediate
        return whole // self.tensor_parallel // self.expert_parallel


Part = Embedding | Projection | Logits | Norm | Attention | LatentAttention | Activation | Experts

PARTS: Mapping[str, Callable[..., Part]] = {
    each.__name__: each
    for each in (Embedding, Projection, Logits, Norm, Attention, LatentAttention, Activation, Experts)
}
"""Name of a kind of part -> the kind."""


@dataclass(frozen=True)
class Decoder:
    """A language model that writes one token after the other.

    Args:
        name: What to call it.
        parts: Each part, with the paths of the modules that have one like it.
        tied: Whether words go in and come out by one table, whose weights count once.
    """

    name: str
    parts: tuple[tuple[Part, tuple[str, ...]], ...]
    tied: bool = False

    def __iter__(self) -> Iterator[tuple[Part, tuple[str, ...]]]:
        return iter(self.parts)

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(len(modules) * part.parameters for part, modules in self.weighted)

    @cached_property
    def weighted(self) -> tuple[tuple[Part, tuple[str, ...]], ...]:
        """Its parts without those whose weights others have, too."""
        if not self.tied:
            return self.parts
        words = {part.vocabulary for part, _ in self.parts if isinstance(part, Logits)}
        return tuple(
            (part, modules) for part, modules in self.parts if not (isinstance(part, Embedding) and part.rows in words)
        )

    @cached_property
    def attentions(self) -> tuple[tuple[Attention | LatentAttention, int], ...]:
        """Its kinds of attention, each with the number of layers that have it."""
        return tuple(
            (part, len(modules)) for part, modules in self.parts if isinstance(part, Attention | LatentAttention)
        )

    @cached_property
    def hidden(self) -> int:
        """Features of a token between layers."""
        return next(part.inputs for part, _ in self.parts if isinstance(part, Logits))

    @cached_property
    def experts(self) -> int:
        """Experts of a layer; 0 where it has none."""
        return max((part.experts for part, _ in self.parts if isinstance(part, Experts)), default=0)
