"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

from .api import extract, predict, predict_operations
from .client import Client
from .errors import JoulecastError
from .networks import Network
from .operations import Operation
from .predictors.prediction import Prediction

__version__ = "0.1.0"

__all__ = [
    "Client",
    "JoulecastError",
    "Network",
    "Operation",
    "Prediction",
    "extract",
    "predict",
    "predict_operations",
]
