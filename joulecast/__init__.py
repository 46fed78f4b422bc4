"""Time, power and energy of PyTorch models on GPUs, before anything runs."""

from .accounting.account import account
from .api import (
    best,
    best_generation,
    explain,
    extract,
    predict,
    predict_generation,
    predict_image,
    predict_many,
    predict_operations,
    predict_parallel_training,
    sweep,
)
from .client import Client
from .errors import JoulecastError
from .generation.choices import GenerationChoices
from .generation.images.predict import ImagePrediction
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
