"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

import importlib as _importlib
import typing as _typing

from .api import best, explain, extract, predict, predict_many, predict_operations, sweep
from .errors import JoulecastError
from .metering.meter import measure
from .operations.network import Network
from .operations.operation import Operation
from .predictors.explanation import Explanation
from .predictors.networks.prediction import Prediction
from .queries import Choice, Sweep

if _typing.TYPE_CHECKING:
    from .accounting.account import account
    from .client import Client
    from .generation.choices import GenerationChoices
    from .generation.choosing import best_generation
    from .generation.generate import predict_generation
    from .generation.images.predict import ImagePrediction, predict_image
    from .generation.prediction import GenerationPrediction
    from .generation.training import predict_parallel_training

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Client",
    "Explanation",
    "GenerationChoices",
    "GenerationPrediction",
    "ImagePrediction",
    "JoulecastError",
    "Network",
    "Operation",
    "Prediction",
    "Sweep",
    "account",
    "best",
    "best_generation",
    "explain",
    "extract",
    "measure",
    "predict",
    "predict_generation",
    "predict_image",
    "predict_many",
    "predict_operations",
    "predict_parallel_training",
    "sweep",
]

_LOADED_ON_USE = {
    "Client": "client",
    "GenerationChoices": "generation.choices",
    "GenerationPrediction": "generation.prediction",
    "ImagePrediction": "generation.images.predict",
    "account": "accounting.account",
    "best_generation": "generation.choosing",
    "predict_generation": "generation.generate",
    "predict_image": "generation.images.predict",
    "predict_parallel_training": "generation.training",
}
"""Name -> module that defines it, for what `joulecast predict` starts quicker without."""


def __getattr__(name: str) -> _typing.Any:
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_importlib.import_module(f".{_LOADED_ON_USE[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
