"""Takes the weights that are stored from a transformer in torch. Needs torch."""

from __future__ import annotations

from ..recipes.transformer import TransformerRecipe
from .model import OperationTransformer
from .weights import TransformerWeights


def weights_of(model: OperationTransformer, recipe: TransformerRecipe) -> TransformerWeights:
    """The weights of a transformer that was made by a recipe."""
    arrays = {name: weights.detach().numpy() for name, weights in model.state_dict().items()}
    # With one stack no vectors of operations are read on, to which a place could be added.
    positions = recipe.positional_encoding and recipe.stacks == "three"
    return TransformerWeights(arrays, recipe.heads, recipe.distance_weighting, recipe.operation_vector, positions)
