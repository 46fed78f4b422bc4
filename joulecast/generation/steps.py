"""The operations of one step of an engine, in which some sequences decode and some prompts are read.

Weights are read once for all tokens of a step. Attention runs one kernel for the sequences that decode and one for the
prompts. A fused kernel is counted as the operation that moves most of its bytes: the residual is added in the norm, the
rotary embedding is applied to queries and keys in one pass, and the gate and up projections are one product. Logits are
computed only for the tokens to sample from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..operations.attributes import ELEMENT_BYTES
from ..operations.entry import Entry
from ..operations.network import Network
from ..operations.operation import Operation
from . import decoder as parts
from .collectives import NCCL
from .decoder import Decoder
from .engines import Engine, sampling_operations
from .parallel import ALONE, Parallel
from .run_energy import FOUR_BIT_BYTES

_QUANTIZED = ("fp8", "nvfp4")
_TILE = 128  # Rows of a tile of DeepGEMM.
_CHUNK = 256  # Tokens of a chunk of a scan: the default of mamba_ssm, which engines take.


@dataclass(frozen=True)
class Precisions:
    """Precisions of a served model."""

    weights: str  # Precision of the weights: bf16, fp16, for quantized layers fp8 or nvfp4, or for experts mxfp4
    cache: str | None = None  # Precision of keys and values; None for 16 bits

    @property
    def activations(self) -> str:
        """Precision of the operations without quantized weights."""
        return self.weights if self.weights in ("bf16", "fp16") else "bf16"

    @property
    def products(self) -> str:
        """Precision in which products with quantized weights are computed; bf16 with weights of four bits."""
        return "bf16" if self.weights in FOUR_BIT_BYTES else self.weights

    def has_four_bits(self, part: parts.Part) -> bool:
        """Whether weights of a part have four bits, while its products are computed in 16."""
        narrow = part.quantized if self.weights != "mxfp4" else isinstance(part, parts.Experts)
        return narrow and self.weights in FOUR_BIT_BYTES

    def element_bytes(self, part: parts.Part) -> float:
        """Bytes of a weight of a part, scales included."""
        if self.has_four_bits(part):
            return FOUR_BIT_BYTES[self.weights]
        return ELEMENT_BYTES[self.products if part.quantized else self.activations]


@dataclass(frozen=True)
class StepTokens:
    """Tokens of one step."""

    decoding: int = 0  # Number of sequences that get one more token
    cached: int = 0  # Number of keys that each of these sequences attends to, the new one included
    prompts: int = 0  # Number of prompts that are read
    prompt_tokens: int = 0  # Tokens of each prompt that this step reads
    prompt_cached: int = 0  # Tokens of each prompt that earlier steps have read
    sampled: int = 0  # Number of tokens that are sampled
    images: bool = False  # Whether the images of a prompt are read, and nothing else

    @property
    def tokens(self) -> int:
        """Number of tokens for which all layers are computed."""
        return self.decoding + self.prompts * self.prompt_tokens


def step_network(
    decoder: Decoder, tokens: StepTokens, engine: Engine, precisions: Precisions, parallel: Parallel = ALONE
) -> Network:
    """The operations of one step on one GPU."""
    return network_of_parts(decoder.name, [(decoder, tokens)], engine, precisions, parallel)


def network_of_parts(
    name: str,
    listed: Sequence[tuple[Decoder, StepTokens]],
    engine: Engine,
    precisions: Precisions,
    parallel: Parallel,
) -> Network:
    """The operations of parts on one GPU, each with the tokens that it computes."""
    calls: dict[Operation, list[str]] = {}
    for decoder, tokens in listed:
        step = _Step(tokens, engine, precisions, parallel)
        for part, modules in decoder:
            for operation in step.operations(part):
                calls.setdefault(operation, []).extend(modules)
    entries = tuple(Entry.at(operation, paths) for operation, paths in calls.items())
    return Network(entries, name=name, input_shape=(listed[0][1].tokens,))


@dataclass(frozen=True)
class _Step:
    tokens: StepTokens
    engine: Engine
    precisions: Precisions
    parallel: Parallel

    def operations(self, part: parts.Part) -> Iterator[Operation]:
        count, sampled = self.tokens.tokens, self.tokens.sampled
        match part:
            case parts.Embedding():
                yield self._plain("embedding", (count,), num_embeddings=part.rows, embedding_dim=part.size)
                yield from self._collective("all_reduce", count, part.size)
            case parts.Projection():
                precision = self.precisions.products if part.quantized else self.precisions.activations
                yield self._linear(count, part.inputs, part.outputs, part.bias, precision)
                if part.division == "rows":
                    yield from self._collective("all_reduce", count, part.outputs)
            case parts.Logits() if sampled:
                yield self._linear(sampled, part.inputs, part.vocabulary, part.bias, self.precisions.activations)
                yield from self._collective("all_gather", sampled, part.vocabulary)
                yield from sampling_operations(self.engine.sampling, sampled, part.vocabulary * self.parallel.tensor)
            case parts.Norm():
                yield self._plain(part.kind, (count * part.rows, part.size))
            case parts.Activation():
                shape = (count, part.size)
                yield self._plain("mul", shape, shape) if part.gated else self._plain("gelu", shape)
            case parts.Experts():
                yield self._plain("softmax", (count, part.experts))
                yield from self._exchange(part)
                yield from self._experts(part)
                yield from self._exchange(part)
                yield from self._collective("all_reduce", count, part.hidden)
            case parts.Attention():
                yield from self._attention(part)
            case parts.LatentAttention():
                yield from self._latent(part)
            case parts.Encoding():
                yield from self._encoding(part)
            case parts.Recurrence():
                yield from self._scan(part)

    def _plain(self, kind: str, *shapes: tuple[int, ...], **attributes: object) -> Operation:
        return Operation(kind, shapes, attributes, precision=self.precisions.activations)

    def _collective(self, kind: str, *shape: int) -> Iterator[Operation]:
        if self.parallel.tensor > 1:
            attributes = {
                "gpus": self.parallel.tensor,
                "link": self.parallel.link,
                "implementation": self.engine.collectives,
            }
            yield self._plain(kind, shape, **attributes)

    def _exchange(self, part: parts.Experts) -> Iterator[Operation]:
        """Sending tokens to the GPUs that have their experts, or back, where each GPU has sequences of its own."""
        gpus = self.parallel.senders
        if gpus > 1:
            # A token goes once to each GPU that has one of its experts.
            copies = gpus * (1 - (1 - 1 / gpus) ** part.top_k)
            attributes = {"gpus": gpus, "link": self.parallel.link, "implementation": NCCL}
            yield self._plain("all_to_all", (self.tokens.tokens, math.ceil(copies * part.hidden)), **attributes)

    def _linear(self, rows: int, inputs: int, outputs: int, bias: bool, precision: str) -> Operation:
        quantized = precision in _QUANTIZED
        attributes = {
            "out_features": outputs,
            "bias": bias,
            "implementation": self.engine.implementation if quantized else "pytorch",
        }
        return Operation("linear", [(rows, inputs)], attributes, precision=precision)

    def _experts(self, part: parts.Experts) -> Iterator[Operation]:
        if not self.engine.grouped_experts:
            yield from self._products_of_experts(part)
            return
        if self.engine.pads_experts and self.precisions.products == "fp8":
            yield from self._padded_experts(part)
            return
        attributes = {
            "intermediate": part.intermediate,
            "top_k": part.top_k,
            "experts": part.experts,
            "tensor_parallel": part.tensor_parallel,
            "expert_parallel": part.expert_parallel,
            # Trained routers prefer some experts.
            "distribution": "power_law_1.01",
            # Models with experts are published with scales for blocks, and were measured so.
            "block_scaled": self.precisions.products == "fp8",
        }
        shape = (self.tokens.tokens * self.parallel.senders, part.hidden)
        yield Operation("experts", [shape], attributes, precision=self.precisions.products)

    def _products_of_experts(self, part: parts.Experts) -> Iterator[Operation]:
        """Experts as batches of products in 16 bits, over those that are expected to get a token at all."""
        experts, inner = part.experts // part.expert_parallel, part.intermediate // part.tensor_parallel
        chosen = self.tokens.tokens * self.parallel.senders * part.top_k / part.expert_parallel
        active = max(1, round(experts * (1 - (1 - 1 / experts) ** chosen)))
        rows = math.ceil(chosen / active)
        yield self._plain("matmul", (active, rows, part.hidden), (active, part.hidden, 2 * inner))
        yield self._plain("mul", *[(active, rows, inner)] * 2)
        yield self._plain("matmul", (active, rows, inner), (active, inner, part.hidden))

    def _padded_experts(self, part: parts.Experts) -> Iterator[Operation]:
        """Experts as products of whole tiles, as vLLM computes them by DeepGEMM on Blackwell.

        Each GPU makes room for all chosen experts of all tokens, those of other GPUs among them, and for the last tile
        of each of its own experts (compute_aligned_M of version 0.11). DeepGEMM's kernels for Blackwell compute all of
        this room, also where it is empty (sm100_fp8_gemm_1d1d.cuh). Tiles are spread evenly over the experts here.
        """
        experts, inner = part.experts // part.expert_parallel, part.intermediate // part.tensor_parallel
        room = self.tokens.tokens * self.parallel.senders * part.top_k + experts * (_TILE - 1)
        rows = _TILE * max(1, round(room / experts / _TILE))
        yield self._linear(rows, part.hidden, experts * 2 * inner, False, "fp8")
        yield self._plain("mul", *[(experts * rows, inner)] * 2)
        yield self._linear(rows, inner, experts * part.hidden, False, "fp8")

    def _attention(self, part: parts.Attention) -> Iterator[Operation]:
        count = self.tokens.tokens
        if part.rotary:
            turned = (part.heads + part.cached_heads) * part.key_size
            yield self._plain("mul", (count, turned), (count, turned))
        yield self._plain("copy", (count, part.cached_elements))
        sizes = part.heads, part.cached_heads, part.key_size, part.value_size, part.window
        if self.tokens.decoding:
            yield self._decoding(*sizes)
        if self.tokens.prompts:
            yield self._reading(*sizes)

    def _latent(self, part: parts.LatentAttention) -> Iterator[Operation]:
        tokens, plain = self.tokens, part.key_size - part.turned
        yield self._plain("mul", *[(self.tokens.tokens, (part.heads + 1) * part.turned)] * 2)
        yield self._plain("copy", (self.tokens.tokens, part.cached_elements))
        if tokens.decoding:
            rows = (part.heads, tokens.decoding)
            yield self._plain("matmul", (*rows, plain), (part.heads, plain, part.latent))
            yield self._decoding(part.heads, 1, part.latent + part.turned, part.latent, None)
            yield self._plain("matmul", (*rows, part.latent), (part.heads, part.latent, part.value_size))
        if tokens.prompts:
            # Keys and values of prompts are expanded, which is cheaper for many queries than the long latent keys.
            read = tokens.prompts * (tokens.prompt_tokens + tokens.prompt_cached)
            expanded = part.heads * (plain + part.value_size)
            yield self._linear(read, part.latent, expanded, False, self.precisions.activations)
            yield self._reading(part.heads, part.heads, part.key_size, part.value_size, None)

    def _encoding(self, part: parts.Encoding) -> Iterator[Operation]:
        patches = self.tokens.prompt_tokens
        if part.rotary:
            yield self._plain("mul", *[(patches, 2 * part.heads * part.size)] * 2)
        seen = min(patches, part.window or patches)
        yield self._attend(math.ceil(patches / seen), (part.heads, seen), (part.heads, seen), part.size, part.size)

    def _scan(self, part: parts.Recurrence) -> Iterator[Operation]:
        """Reading and writing the state of each sequence; prompts are products of chunks with each other and states."""
        if self.tokens.decoding:
            yield Operation("add", [(self.tokens.decoding, part.elements)])
        if self.tokens.prompts:
            chunk, heads = _CHUNK, part.heads * self.tokens.prompts * math.ceil(self.tokens.prompt_tokens / _CHUNK)
            yield self._plain("matmul", (heads, chunk, chunk), (heads, chunk, part.size))
            yield self._plain("matmul", (heads, part.size, chunk), (heads, chunk, part.state))
            yield self._plain("matmul", (heads, chunk, part.state), (heads, part.state, part.size))

    def _decoding(self, heads: int, cached: int, key: int, value: int, window: int | None) -> Operation:
        seen = min(self.tokens.cached, window or self.tokens.cached)
        return self._attend(self.tokens.decoding, (heads, 1), (cached, seen), key, value)

    def _reading(self, heads: int, cached: int, key: int, value: int, window: int | None) -> Operation:
        new = self.tokens.prompt_tokens
        seen = new + self.tokens.prompt_cached
        some = None if window is None or window >= seen else window
        return self._attend(self.tokens.prompts, (heads, new), (cached, seen), key, value, some, causal=new > 1)

    def _attend(
        self,
        rows: int,
        queries: tuple[int, int],
        keys: tuple[int, int],
        key: int,
        value: int,
        window: int | None = None,
        *,
        causal: bool = False,
    ) -> Operation:
        """Attention of the heads and queries of some rows to their heads of keys and values, and the number of keys."""
        attributes = {
            "causal": causal,
            "window": window,
            "cache_precision": self.precisions.cache,
            "implementation": self.engine.implementation,
        }
        shapes = [(rows, *queries, key), (rows, *keys, key), (rows, *keys, value)]
        return Operation("attention", shapes, attributes, precision=self.precisions.activations)
