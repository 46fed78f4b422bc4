"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

import importlib as _importlib
import typing as _typing

from .api import extract, predict, predict_many
from .errors import JoulecastError
from .operations.network import Network
from .operations.operation import Operation
from .predictors.networks.prediction import Prediction

if _typing.TYPE_CHECKING:
    from .accounting.account import account
    from .api.choosing import best, sweep
    from .api.operations import explain, predict_operations
    from .generation.choices import GenerationChoices
    from .generation.generate import predict_generation
    from .generation.images.predict import ImagePrediction, predict_image
    from .generation.prediction import GenerationPrediction
    from .metering.meter import measure
    from .predictors.explanation import Explanation
    from .queries import Choice, Sweep
    from .remote import Client
    from .runs import Run
    from .runs.choosing import best_run
    from .runs.predict import predict_run
    from .traffic import ServingSimulation
    from .traffic.best import best_generation
    from .traffic.simulate import simulate_serving

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
    "Run",
    "ServingSimulation",
    "Sweep",
    "account",
    "best",
    "best_generation",
    "best_run",
    "explain",
    "extract",
    "measure",
    "predict",
    "predict_generation",
    "predict_image",
    "predict_many",
    "predict_operations",
    "predict_run",
    "simulate_serving",
    "sweep",
]

_LOADED_ON_USE = {
    "Choice": "queries",
    "Client": "remote",
    "Explanation": "predictors.explanation",
    "GenerationChoices": "generation.choices",
    "GenerationPrediction": "generation.prediction",
    "ImagePrediction": "generation.images.predict",
    "Run": "runs",
    "ServingSimulation": "traffic",
    "Sweep": "queries",
    "account": "accounting.account",
    "best": "api.choosing",
    "best_generation": "traffic.best",
    "best_run": "runs.choosing",
    "explain": "api.operations",
    "measure": "metering.meter",
    "predict_generation": "generation.generate",
    "predict_image": "generation.images.predict",
    "predict_operations": "api.operations",
    "predict_run": "runs.predict",
    "simulate_serving": "traffic.simulate",
    "sweep": "api.choosing",
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
