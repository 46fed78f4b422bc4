"""How tokens are sampled from logits: the operations over the whole vocabulary, in fp32 (vLLM, v1/sample)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..errors import named
from ..operations.operation import Operation

_RANDOM = ("softmax", "random", "div", "argmax")

SAMPLINGS: Mapping[str, tuple[str, ...]] = {
    "greedy": ("copy", "argmax"),
    "temperature": ("copy", "div", *_RANDOM),
    # Logits are sorted, cut off where their probabilities add up to p or after k of them, and put back in order
    # (v1/sample/ops/topk_topp_sampler.py). Kernels that need no sorting, as FlashInfer has them, take less.
    "top_p": ("copy", "div", "sort", "softmax", "cumsum", "masked_fill", "scatter", *_RANDOM),
}
"""Name -> kinds of the operations."""

_INPUTS = {"masked_fill": 2, "scatter": 3}
_ALONG_WORDS = frozenset({"softmax", "argmax", "sort", "cumsum"})


def checked_sampling(name: str) -> str:
    """The name of a way to sample.

    Raises:
        UnknownNameError: It is unknown.
    """
    named("sampling", name, SAMPLINGS)
    return name


def sampling_operations(sampling: str, tokens: int, words: int) -> Iterator[Operation]:
    """The operations that sample tokens.

    Args:
        sampling: A name of `SAMPLINGS`.
        tokens: Number of tokens that are sampled.
        words: Size of the vocabulary.
    """
    for kind in SAMPLINGS[sampling]:
        attributes = {"dim": -1} if kind in _ALONG_WORDS else {}
        yield Operation(kind, [(tokens, words)] * _INPUTS.get(kind, 1), attributes)
