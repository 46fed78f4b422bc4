"""The public functions: of networks, of single operations, and of choices between GPUs and clocks.

Importing this package imports neither the search for choices nor the explanation of operations.
"""

from .predicting import extract, predict, predict_many

__all__ = ["extract", "predict", "predict_many"]
