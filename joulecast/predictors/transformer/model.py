"""A transformer over the operations of a network, after DeepPM (Shim et al., DATE 2022). Needs torch.

DeepPM reads a basic block of x86 code, which consists of instructions, which consist of tokens. Here a network consists
of operations, which consist of tokens. Three encoder stacks follow one another: over all tokens of the network, over
the tokens of one operation, and over one vector for each operation: the sum of its tokens or, as in DeepPM, the token
that names its kind. Attention scores shrink with the distance of two tokens, and residuals are added without layer
norm. A linear head predicts time and energy from each operation's vector. How a network differs from the sum of its
operations is predicted by a separate head from the sum of the vectors (attentive.py), because many operations but
few networks were measured.

For predictions, encoder.py has the same arithmetic in numpy. A change of one must be made in the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..physics.operation_numbers import FAMILIES
from ..recipes import TransformerRecipe
from .encoder import UNIT, sinusoids
from .tokens import IN_NETWORK, ROLES, WIDTH

_SPREAD = 0.2  # Standard deviation of the initial weights that are applied to tokens.


class _Layer(nn.Module):
    """Self-attention and a feed-forward part, each with a residual around it."""

    def __init__(self, width: int, recipe: TransformerRecipe, feed_forward: int) -> None:
        super().__init__()
        self._heads, self._head_width = recipe.heads, width // recipe.heads
        self._weighted = recipe.distance_weighting
        self.attend = nn.Linear(width, 3 * width)
        self.gather = nn.Linear(width, width)
        self.widen = nn.Linear(width, feed_forward * width)
        self.narrow = nn.Linear(feed_forward * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) if recipe.layer_norm else nn.Identity() for _ in range(2))
        # Without layer norm, a sum over many layers with random weights would start far from its target. With zeros,
        # each layer starts as the identity.
        for last in () if recipe.layer_norm else (self.gather, self.narrow):
            nn.init.zeros_(last.weight)

    def forward(self, vectors: Tensor) -> Tensor:
        vectors = self.norms[0](vectors + self.gather(self._attention(vectors)))
        normalized: Tensor = self.norms[1](vectors + self.narrow(functional.gelu(self.widen(vectors))))
        return normalized

    def _attention(self, vectors: Tensor) -> Tensor:
        sequences, length, _ = vectors.shape
        parts = self.attend(vectors).view(sequences, length, 3, self._heads, self._head_width)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        if length == 1:  # The softmax over a single score is 1.
            alone: Tensor = values.reshape(sequences, length, -1)
            return alone
        # Queries are scaled instead of scores: scores are many, and each pass over them takes time.
        scores = (queries / math.sqrt(self._head_width)) @ keys.transpose(-1, -2)
        if self._weighted:
            place = torch.arange(length, dtype=scores.dtype)
            scores = scores * (1 - (place[:, None] - place).abs() / length)
        gathered: Tensor = scores.softmax(-1) @ values
        return gathered.transpose(1, 2).reshape(sequences, length, self._heads * self._head_width)


class OperationTransformer(nn.Module):
    """The transformer, as the docstring of this file describes it.

    Args:
        recipe: Numbers of layers, widths, and which parts of DeepPM's design are used.
    """

    def __init__(self, recipe: TransformerRecipe, kinds: int) -> None:
        super().__init__()
        self._three = recipe.stacks == "three"
        self._of_kind, self._positions = recipe.operation_vector == "kind", recipe.positional_encoding
        width = recipe.width

        def stack(layers: int, feed_forward: int) -> nn.Sequential:
            return nn.Sequential(*(_Layer(width, recipe, feed_forward) for _ in range(layers)))

        self.read = nn.Parameter(torch.randn(len(ROLES), WIDTH, width) * _SPREAD)
        self.roles = nn.Parameter(torch.randn(len(ROLES), width) * _SPREAD)
        if self._positions:
            self.roles.data.copy_(torch.from_numpy(sinusoids(len(ROLES), width)))
        self.family = nn.Embedding(len(FAMILIES), width)
        self.kind = nn.Embedding(kinds, width)
        # The range of each input in the training data. Inputs outside are clipped to it, so that the transformer does
        # not extrapolate, as trees do not. An input that was constant in training thereby has no effect.
        self.lowest = nn.Buffer(torch.full((len(ROLES), WIDTH), -torch.inf))
        self.highest = nn.Buffer(torch.full((len(ROLES), WIDTH), torch.inf))
        for embedding in (self.family, self.kind):
            nn.init.normal_(embedding.weight, std=_SPREAD)
        layers = recipe.network_layers, recipe.operation_layers, recipe.kind_layers
        if self._three:
            self.over_network = stack(layers[0], recipe.feed_forward)
            self.over_operation = stack(layers[1], recipe.feed_forward)
            self.over_kinds = stack(layers[2], recipe.kind_feed_forward)
        else:
            self.over_network = stack(sum(layers), recipe.feed_forward)
        self.operation_head = nn.Linear(width, 2)
        nn.init.zeros_(self.operation_head.weight)
        nn.init.zeros_(self.operation_head.bias)

    def matrices(self) -> Iterator[Tensor]:
        """The weight matrices that are applied to tokens and those of the layers, without biases."""
        yield self.read
        for layer in (module for module in self.modules() if isinstance(module, _Layer)):
            yield from (part.weight for part in (layer.attend, layer.gather, layer.widen, layer.narrow))

    @torch.no_grad()
    def read_as_they_are(self, centre: Tensor, unit: Tensor) -> None:
        """Change the weights so that the model takes tokens as they are instead of normalized ones.

        `centre` was subtracted from tokens in training, and `unit` divided them; both (len(ROLES), WIDTH).
        """
        self.read.div_(unit[:, :, None])
        self.roles.sub_((centre[:, None] @ self.read)[:, 0])
        for bound in (self.lowest, self.highest):
            bound.mul_(unit).add_(centre)

    def forward(self, values: Tensor, families: Tensor, kinds: Tensor, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Predict log ratios of operations, and make vectors of networks, from the arguments of an `Encoder`.

        Returns the logarithms of device time over least time and of dynamic energy over that of physics, shape
        (sequences, operations, 2). And a vector for each network, shape (sequences, width + IN_NETWORK): the mean,
        weighted with `shares`, of its operations' vectors and of the numbers that relate them to the network.
        """
        vectors = self._read(values, families, kinds)
        in_network = torch.cat([vectors, values[:, :, 0, -IN_NETWORK:]], dim=-1)
        return self.operation_head(vectors) * UNIT, (in_network * shares[..., None]).sum(1)

    def _read(self, values: Tensor, families: Tensor, kinds: Tensor) -> Tensor:
        """A vector for each operation, shape (sequences, operations, width)."""
        sequences, operations = families.shape
        vectors = self._of_tokens(values, families, kinds)
        vectors = self.over_network(vectors.reshape(sequences, operations * len(ROLES), -1))
        vectors = vectors.reshape(sequences * operations, len(ROLES), -1)
        if not self._three:
            return self._by_operation(vectors, sequences)
        operation_vectors = self._by_operation(self.over_operation(vectors), sequences)
        if self._positions:
            operation_vectors = operation_vectors + torch.from_numpy(sinusoids(operations, operation_vectors.shape[-1]))
        through: Tensor = self.over_kinds(operation_vectors)
        return through

    def _of_tokens(self, values: Tensor, families: Tensor, kinds: Tensor) -> Tensor:
        """A vector for each token, shape (sequences x operations, len(ROLES), width)."""
        flat = values.clamp(self.lowest, self.highest).reshape(families.numel(), len(ROLES), WIDTH)
        read = torch.bmm(flat.transpose(0, 1), self.read).transpose(0, 1) + self.roles
        named = (self.family(families) + self.kind(kinds)).reshape(families.numel(), 1, -1)
        return torch.cat([read[:, :1] + named, read[:, 1:]], dim=1)

    def _by_operation(self, vectors: Tensor, sequences: int) -> Tensor:
        """One vector for each operation, shape (sequences, operations, width), from those of its tokens.

        A sum is divided by the square root of the number of tokens, so that it varies as much as a single token does.
        """
        one = vectors[:, 0] if self._of_kind else vectors.sum(1) / math.sqrt(len(ROLES))
        return one.reshape(sequences, -1, vectors.shape[-1])
