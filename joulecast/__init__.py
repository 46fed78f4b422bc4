"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

from .accounting.account import account
from .api import (
    best,
    best_generation,
    explain,
    extract,
    predict,
    predict_generation,
    predict_many,
    predict_operations,
    sweep,
)
from .client import Client
from .errors import JoulecastError
from .generation.choices import GenerationChoices
from .generation.prediction import GenerationPrediction
from .metering.meter import measure
from .operations.network import Network
from .operations.operation import Operation
from .predictors.explanation import Explanation
from .predictors.networks.prediction import Prediction
from .queries import Choice, Sweep

__version__ = "0.1.0"

__all__ = [
    "Choice",
    "Client",
    "Explanation",
    "GenerationChoices",
    "GenerationPrediction",
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
    "predict_many",
    "predict_operations",
    "sweep",
]
