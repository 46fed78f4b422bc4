"""The variants of DeepPM's ablation (Shim et al., DATE 2022) that do not ship, and Ithemal's form, for deeppm.py.

One stack in place of three needs nothing but other numbers of layers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from joulecast.predictors.recipes import TransformerRecipe
from joulecast.predictors.transformer.encoder import Encoder, layers_of, shapes
from joulecast.predictors.transformer.fit import SPREAD, starting_weights

NORM_EPSILON = 1e-5  # As in torch.


@dataclass(frozen=True)
class VariantRecipe(TransformerRecipe):
    """Settings of a variant.

    Args:
        layer_norm: Whether every residual is normalized, as in the standard encoder.
        distance_weighting: Whether attention scores shrink with the distance of two tokens.
        operation_vector: What the third stack reads of an operation: the sum of its tokens' vectors, or, as in DeepPM,
            which reads opcodes only, the vector of the token that names its "kind".
        positional_encoding: Whether tokens start from sinusoids of their place in the operation instead of random
            vectors, and sinusoids of an operation's place in the network are added to its vector, as in DeepPM.
    """

    layer_norm: bool = False
    distance_weighting: bool = True
    operation_vector: str = "sum"
    positional_encoding: bool = False


def sinusoids(places: int, width: int) -> NDArray[np.float32]:
    """Sines, then cosines, of the places from 0 on, shape (places, width).

    Their wavelengths reach from 2 pi to 10,000 times that (Vaswani et al., Attention Is All You Need, 2017, section
    3.5).
    """
    pairs = width // 2
    angles = np.arange(places)[:, None] * 10_000.0 ** (-np.arange(pairs) / pairs)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


class Variant(Encoder):
    """A transformer with the settings of a VariantRecipe."""

    def stack(self, stack: str, vectors: Any) -> Any:
        if stack == "over_kinds" and self.recipe.positional_encoding:
            vectors = vectors + self.functions.array(sinusoids(*vectors.shape[1:]))
        if not self.recipe.layer_norm:
            return super().stack(stack, vectors)
        for name in layers_of(self.recipe):
            if name.startswith(stack):
                vectors = self.normalized(f"{name}.norms.0", vectors + self.attention(name, vectors))
                vectors = self.normalized(f"{name}.norms.1", vectors + self.feed_forward(name, vectors))
        return vectors

    def normalized(self, name: str, vectors: Any) -> Any:
        off = vectors - vectors.mean(-1)[..., None]
        unit = off / ((off * off).mean(-1)[..., None] + NORM_EPSILON) ** 0.5
        return unit * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def of_operations(self, vectors: Any) -> Any:
        return vectors[:, 0] if self.recipe.operation_vector == "kind" else super().of_operations(vectors)

    def scores(self, queries: Any, keys: Any) -> Any:
        if self.recipe.distance_weighting:
            return super().scores(queries, keys)
        return (queries / queries.shape[-1] ** 0.5) @ keys.swapaxes(1, 2)


def starting_variant(recipe: VariantRecipe, kinds: int) -> dict[str, Tensor]:
    """Random weights of a `Variant`. With layer norm, no layer starts as the identity."""
    if not recipe.layer_norm:
        found = starting_weights(recipe, kinds)
    else:
        found = {}
        for name, shape in shapes(recipe, kinds).items():
            if name in ("read", "roles", "family.weight", "kind.weight"):
                found[name] = torch.randn(shape) * SPREAD
            elif name.startswith("over_") and name.endswith("weight"):
                found[name] = (2 * torch.rand(shape) - 1) / shape[1] ** 0.5
            else:
                found[name] = torch.zeros(shape)
            if name.endswith("narrow.bias"):  # the last of its layer
                norms = (name.replace("narrow.bias", norm) for norm in ("norms.0", "norms.1"))
                for norm in norms:
                    found |= {f"{norm}.weight": torch.ones(recipe.width), f"{norm}.bias": torch.zeros(recipe.width)}
    if recipe.positional_encoding:
        found["roles"] = torch.from_numpy(sinusoids(*found["roles"].shape))
    return found


class OperationLstm(Encoder):
    """Ithemal's form (Mendis et al., ICML 2019): an LSTM over the tokens of an operation, one over the operations."""

    def vectors(self, values: Any, families: Any, kinds: Any) -> Any:
        tokens = torch.as_tensor(self.of_tokens(values, families, kinds))
        _, (last, _) = self._lstm("over_tokens", tokens)
        vectors = self._lstm("over_operations", last[0].reshape(*families.shape, -1))[0]
        return vectors if isinstance(values, Tensor) else vectors.numpy()

    def _lstm(self, name: str, vectors: Tensor) -> Any:
        weights = {
            each.removeprefix(f"{name}."): torch.as_tensor(weight)
            for each, weight in self.weights.items()
            if each.startswith(f"{name}.")
        }
        return functional_call(lstms(self.recipe.width)[name], weights, (vectors,))


def lstms(width: int) -> dict[str, nn.LSTM]:
    """Of as many numbers as the transformer has, about."""
    return {
        "over_tokens": nn.LSTM(width, 2 * width, batch_first=True),
        "over_operations": nn.LSTM(2 * width, width, batch_first=True),
    }


def starting_lstm(recipe: TransformerRecipe, kinds: int) -> dict[str, Tensor]:
    """Random weights of an `OperationLstm`."""
    found = starting_weights(replace(recipe, network_layers=0, operation_layers=0, kind_layers=0), kinds)
    for name, lstm in lstms(recipe.width).items():
        found |= {f"{name}.{each}": weight.detach() for each, weight in lstm.named_parameters()}
    return found
