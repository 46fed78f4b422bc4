"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

from .api import best, explain, extract, predict, predict_many, predict_operations, sweep
from .client import Client
from .errors import JoulecastError
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
    "JoulecastError",
    "Network",
    "Operation",
    "Prediction",
    "Sweep",
    "best",
    "explain",
    "extract",
    "measure",
    "predict",
    "predict_many",
    "predict_operations",
    "sweep",
]
