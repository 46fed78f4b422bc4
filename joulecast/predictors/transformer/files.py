"""From a transformer in torch to the weights that are stored. Needs torch."""

from __future__ import annotations

from ...errors import ZooError
from ..recipes.transformer import TransformerRecipe
from .fit import TorchEncoder
from .model import OperationTransformer
from .weights import TransformerWeights


def stored_weights(encoder: object) -> bytes:
    """The file of a transformer that was just trained.

    Raises:
        ZooError: It was not trained, but read from an entry.
    """
    if not isinstance(encoder, TorchEncoder):
        raise ZooError("only a predictor that was just trained can be stored", given=type(encoder).__name__)
    return weights_of(encoder.model, encoder.recipe).to_bytes()


def weights_of(model: OperationTransformer, recipe: TransformerRecipe) -> TransformerWeights:
    """The weights of a transformer that was made by a recipe."""
    arrays = {name: weights.detach().numpy() for name, weights in model.state_dict().items()}
    return TransformerWeights(arrays, recipe.heads, recipe.distance_weighting)
