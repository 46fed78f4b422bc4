"""A transformer at rest: safetensors for training on, ONNX for predicting. Needs torch."""

from __future__ import annotations

import io
import warnings

import torch

from ..errors import MissingDependencyError, ZooError
from .encoder import INPUTS, OUTPUTS
from .tokens import ROLES, WIDTH
from .transformer import OperationTransformer
from .transformer_fit import TorchEncoder
from .transformer_recipe import TransformerRecipe

_OPSET = 17


def stored_forms(encoder: object) -> dict[str, bytes]:
    """The files of a transformer that was just trained.

    Raises:
        MissingDependencyError: safetensors or onnx is not installed.
        ZooError: It was not trained, but read from an entry.
    """
    if not isinstance(encoder, TorchEncoder):
        raise ZooError("only a predictor that was just trained can be stored", given=type(encoder).__name__)
    return {"transformer.onnx": to_onnx(encoder.model), "transformer.safetensors": to_safetensors(encoder.model)}


def to_safetensors(model: OperationTransformer) -> bytes:
    """The weights.

    Raises:
        MissingDependencyError: safetensors is not installed.
    """
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise _missing("safetensors") from error
    stored: bytes = save({name: weights.contiguous() for name, weights in model.state_dict().items()})
    return stored


def from_safetensors(stored: bytes, recipe: TransformerRecipe, kinds: int) -> OperationTransformer:
    """The transformer that `to_safetensors` wrote.

    Args:
        stored: Its weights.
        recipe: That it was made by.
        kinds: Length of its vocabulary.

    Raises:
        MissingDependencyError: safetensors is not installed.
        ZooError: The bytes are no weights, or those of another transformer.
    """
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError as error:
        raise _missing("safetensors") from error
    model = OperationTransformer(recipe, kinds)
    try:
        model.load_state_dict(load(stored))
    except (SafetensorError, RuntimeError) as error:
        raise ZooError(
            "these are not the weights of this transformer",
            hint=str(error).splitlines()[0],
            allowed=f"what a recipe with {recipe} stored",
        ) from error
    return model


def to_onnx(model: OperationTransformer) -> bytes:
    """The transformer for ONNX Runtime; the same weights give the same bytes.

    Raises:
        MissingDependencyError: onnx is not installed.
    """
    shape = (2, 3)  # Any but one, which would be taken for a constant.
    examples = (
        torch.zeros(*shape, len(ROLES), WIDTH),
        torch.zeros(shape, dtype=torch.int64),
        torch.zeros(shape, dtype=torch.int64),
        torch.ones(shape),
    )
    free = {0: "sequences", 1: "operations"}
    written = io.BytesIO()
    with warnings.catch_warnings():
        # The newer exporter needs onnxscript, takes fifty times as long and gives the same numbers.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            torch.onnx.export(
                model.eval(),
                examples,
                written,  # type: ignore[arg-type]  # a buffer, as this exporter takes
                dynamo=False,
                opset_version=_OPSET,
                input_names=list(INPUTS),
                output_names=list(OUTPUTS),
                dynamic_axes={**dict.fromkeys(INPUTS, free), "operations": free, "networks": {0: "sequences"}},
            )
        except ModuleNotFoundError as error:
            raise _missing("onnx") from error
    return written.getvalue()


def _missing(name: str) -> MissingDependencyError:
    return MissingDependencyError(f"storing a transformer needs {name}", hint="pip install 'joulecast[attentive]'")
