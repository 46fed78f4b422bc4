"""The parts of a decoder as engines compute them: each part is one fused kernel, or a few.

Sizes are those of the whole model. parallel.py divides them over GPUs, and steps.py turns them into operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar, get_args

Division = Literal["columns", "rows", "none"]
"""How tensor parallelism divides a weight: its outputs, its inputs (followed by an all-reduce), or not at all."""


class _Part:
    """What an engine computes as one kernel, or a few."""

    quantized = False  # Whether engines quantize its weights when the model is served in fp8, nvfp4 or mxfp4

    @property
    def parameters(self) -> int:
        """Elements of its weights; of experts, on one GPU."""
        match self:
            case Embedding(rows, size):
                return rows * size
            case Projection(inputs, outputs, bias) | Logits(inputs, outputs, bias):
                return outputs * (inputs + bias)
            case Norm(size=size):
                return size
            case LatentAttention():  # The weights that expand the cached vector to keys and values.
                return self.latent * self.heads * (self.key_size - self.turned + self.value_size)
            case Experts():  # The gate, up and down projections of each.
                whole = 3 * self.experts * self.hidden * self.intermediate
                return whole // self.tensor_parallel // self.expert_parallel
        return 0


@dataclass(frozen=True)
class Embedding(_Part):
    """A table of vectors. Each token looks up one of them."""

    rows: int  # Number of vectors: the size of the vocabulary, or the number of positions
    size: int


@dataclass(frozen=True)
class Projection(_Part):
    """A linear layer. Layers that read the same input are put together to one."""

    inputs: int
    outputs: int
    bias: bool = False  # Whether a bias is added
    division: Division = "columns"  # How tensor parallelism divides its weights
    quantized: bool = True  # Whether engines quantize its weights when the model is served in fp8, nvfp4 or mxfp4


@dataclass(frozen=True)
class Logits(_Part):
    """The language-model head. Engines compute it only for the tokens that they sample from."""

    inputs: int
    vocabulary: int
    bias: bool = False


@dataclass(frozen=True)
class Norm(_Part):
    """A norm. Engines add the residual in the same kernel."""

    kind: str
    size: int  # Elements that are normalized together
    rows: int = 1  # Number of vectors of this size for each token: 1, or the number of heads
    divided: bool = False  # Whether tensor parallelism divides the rows


@dataclass(frozen=True)
class Attention(_Part):
    """Attention to a paged cache of keys and values."""

    heads: int
    cached_heads: int  # Number of heads of keys and values
    key_size: int  # Elements of one key, and of one value, per head
    value_size: int
    window: int | None = None  # The largest number of keys that a query attends to, its own included; None for all
    rotary: bool = True  # Whether queries and keys have rotary position embeddings

    @property
    def cached_elements(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.cached_heads * (self.key_size + self.value_size)


@dataclass(frozen=True)
class LatentAttention(_Part):
    """DeepSeek's latent attention (MLA, arXiv 2405.04434). Its cache has one vector per token for all heads.

    A decoding step does not expand the cached vectors to keys and values. It multiplies the queries with the weights
    that would expand the keys, and the result of attention with those of the values ("absorbed" weights).
    """

    heads: int
    key_size: int  # Elements of one key, and of one value, per head, after expanding
    value_size: int
    latent: int  # Elements of the cached vector from which keys and values are computed
    turned: int  # Elements of the key with a rotary position embedding, which are cached beside the vector

    @property
    def cached_elements(self) -> int:
        """Elements that a token leaves in the cache."""
        return self.latent + self.turned

    window = None


@dataclass(frozen=True)
class Encoding(_Part):
    """Attention of the patches of an image to each other."""

    heads: int
    size: int  # Elements of a query, key or value, per head
    window: int | None = None  # Number of patches that see each other; None for all
    rotary: bool = True  # Whether queries and keys have rotary position embeddings


@dataclass(frozen=True)
class Recurrence(_Part):
    """The scan of a layer with a recurrent state (Mamba-2; Dao and Gu, arXiv 2405.21060), in fp32 for each sequence."""

    heads: int
    size: int  # Features of a head
    state: int  # Elements of the state for each feature

    @property
    def elements(self) -> int:
        """Elements of the state of a sequence."""
        return self.heads * self.size * self.state


@dataclass(frozen=True)
class Activation(_Part):
    """The activation between the layers of a feed-forward block."""

    size: int
    gated: bool  # Whether one half of its inputs is multiplied with the activation of the other half


@dataclass(frozen=True)
class Experts(_Part):
    """A mixture of experts with the choice of experts for each token, without the router's linear layer."""

    hidden: int
    intermediate: int
    experts: int
    top_k: int  # Number of experts that compute a token
    tensor_parallel: int = 1  # Number of GPUs that share the features of each expert
    expert_parallel: int = 1  # Number of GPUs over which whole experts are distributed

    quantized = True


Part = (
    Embedding | Projection | Logits | Norm | Attention | LatentAttention | Encoding | Recurrence | Activation | Experts
)

Kind = TypeVar("Kind", bound=_Part)

PARTS: Mapping[str, Callable[..., Part]] = {each.__name__: each for each in get_args(Part)}
"""Name of a class of parts -> the class."""


_RECURRENT = "assumed: recurrent layers read and write their states once, and read prompts as products of chunks"


@dataclass(frozen=True)
class Decoder:
    """A language model that generates one token after the other."""

    name: str
    parts: tuple[tuple[Part, tuple[str, ...]], ...]  # Each part, with the paths of all modules that have an equal one
    tied: bool = False  # Whether the embedding and the language-model head share their weights, which then count once
    # The largest number of tokens of a prompt and its output together; None if it is not known.
    context: int | None = None
    top_p: bool = False  # Whether its generation_config samples by top-p or top-k
    lacking: tuple[str, ...] = ()  # What its parts lack

    def __iter__(self) -> Iterator[tuple[Part, tuple[str, ...]]]:
        return iter(self.parts)

    def of(self, kind: type[Kind]) -> list[tuple[Kind, int]]:
        """Its parts of a kind, each with the number of modules that have it."""
        return [(part, len(modules)) for part, modules in self.parts if isinstance(part, kind)]

    @cached_property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(len(modules) * part.parameters for part, modules in self.weighted)

    @cached_property
    def weighted(self) -> tuple[tuple[Part, tuple[str, ...]], ...]:
        """Its parts without the embedding, if that shares its weights with the language-model head."""
        words = {head.vocabulary for head, _ in self.of(Logits)} if self.tied else ()
        return tuple(each for each in self.parts if not (isinstance(each[0], Embedding) and each[0].rows in words))

    @cached_property
    def attentions(self) -> tuple[tuple[Attention | LatentAttention, int], ...]:
        """Its different attentions, each with the number of layers that have it."""
        return (*self.of(Attention), *self.of(LatentAttention))

    @cached_property
    def state_elements(self) -> int:
        """Elements of the recurrent states of a sequence, in all layers."""
        return sum(layers * part.elements for part, layers in self.of(Recurrence))

    @cached_property
    def scans(self) -> int:
        """Number of layers with a recurrent state."""
        return sum(layers for _, layers in self.of(Recurrence))

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know about its parts."""
        return (*self.lacking, *((_RECURRENT,) if self.scans else ()))

    @cached_property
    def hidden(self) -> int:
        """Features of a token between layers."""
        return self.of(Logits)[0][0].inputs

    @cached_property
    def experts(self) -> int:
        """Number of experts of a layer; 0 without experts."""
        return max((part.experts for part, _ in self.of(Experts)), default=0)
