"""Settings of a transformer over operations and networks."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ...errors import InputError, unknown_name
from .bounds import require_float, require_integer

STACKS = ("three", "one")
OPERATION_VECTORS = ("sum", "kind")


@dataclass(frozen=True)
class TransformerRecipe:
    """Settings of a transformer.

    The variants are those of the ablation in DeepPM (Shim et al., DATE 2022): a standard encoder (layer_norm = true),
    without weighting (distance_weighting = false), without the three stacks (stacks = "one").

    Args:
        width: Width of a token's vector, a multiple of `heads`.
        heads: Attention heads of a layer.
        network_layers: Layers over all tokens of the sequence.
        operation_layers: Layers over the tokens of one operation.
        kind_layers: Layers over one vector per operation.
        feed_forward: Width of the feed-forward part over that of a vector, in the first two stacks.
        kind_feed_forward: Width of the feed-forward part in the third stack, which has a tenth of the vectors.
        stacks: three, or one over all tokens with as many layers.
        layer_norm: Whether every residual is normalized, as in the standard encoder.
        distance_weighting: Whether attention scores shrink with the distance of two tokens.
        operation_vector: What the third stack reads of an operation: the sum of its tokens' vectors, or, as in DeepPM,
            which reads opcodes only, the vector of the token that names its kind.
        positional_encoding: Whether tokens start from sinusoids of their place in the operation instead of random
            vectors, and sinusoids of an operation's place in the network are added to its vector, as in DeepPM.
        epochs: Passes over the operations.
        batch: Operations per step.
        learning_rate: Highest learning rate of AdamW, for embeddings, biases and heads.
        matrix_learning_rate: Highest learning rate of Muon (regressors/muon.py), for the matrices of token embeddings
            and layers; with 0, AdamW updates them, too.
        most_rows: Largest number of device times to learn from; more are thinned out within each kind and GPU.
        unknown_kinds: Share of the operations whose kind is hidden in training, so that the vector of unmeasured kinds
            is trained, too.
        together: Share of the training steps that read operations as parts of synthetic networks instead of alone.
        shrinkage: Weight of the penalty that draws the corrections of networks to zero; the data has weight 1.
        folds: Folds of the cross-validation, at least 2.
        seed: Seed of the random numbers, so that training is repeatable.
    """

    width: int = 32
    heads: int = 2
    network_layers: int = 1
    operation_layers: int = 1
    kind_layers: int = 2
    feed_forward: int = 2
    kind_feed_forward: int = 8
    stacks: Literal["three", "one"] = "three"
    layer_norm: bool = False
    distance_weighting: bool = True
    operation_vector: Literal["sum", "kind"] = "sum"
    positional_encoding: bool = False
    epochs: int = 20
    batch: int = 256
    learning_rate: float = 3e-3
    matrix_learning_rate: float = 0.01
    most_rows: int = 150_000
    unknown_kinds: float = 0.02
    together: float = 0.15
    shrinkage: float = 1.0
    folds: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            *((name, 1) for name in ("width", "heads", "feed_forward", "kind_feed_forward", "epochs", "batch")),
            *((name, 0) for name in ("network_layers", "operation_layers", "kind_layers", "seed")),
            ("most_rows", 1),
            ("folds", 2),
        ):
            require_integer(name, getattr(self, name), least)
        for name, most in (
            ("learning_rate", 1.0),
            ("matrix_learning_rate", 1.0),
            ("unknown_kinds", 0.5),
            ("together", 1.0),
            ("shrinkage", math.inf),
        ):
            require_float(name, getattr(self, name), 0.0, most)
        for name in ("layer_norm", "distance_weighting", "positional_encoding"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(
                    f"{name} of a recipe is neither true nor false",
                    given=repr(getattr(self, name)),
                    allowed="true, false",
                )
        if self.stacks not in STACKS:
            raise unknown_name("stacks of a recipe", self.stacks, STACKS)
        if self.operation_vector not in OPERATION_VECTORS:
            raise unknown_name("operation_vector of a recipe", self.operation_vector, OPERATION_VECTORS)
        if self.positional_encoding and self.width % 2:
            raise InputError(
                "width of a recipe with positional encoding is odd: a sine and a cosine share each frequency",
                given=self.width,
                allowed="an even width",
            )
        if self.width % self.heads:
            raise InputError(
                "width of a recipe is not a multiple of heads", given=self.width, allowed=f"k x {self.heads}"
            )

    def to_dict(self) -> dict[str, Any]:
        """The settings as a dictionary."""
        return asdict(self)
