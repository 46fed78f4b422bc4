"""The public functions: of networks, of single operations, and of choices between GPUs and clocks.

Importing this package imports neither the search for choices nor the explanation of operations.
"""

from .many import predict_many
from .predicting import extract, predict, prepare

__all__ = ["extract", "predict", "predict_many", "prepare"]
