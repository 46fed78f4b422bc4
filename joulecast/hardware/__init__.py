"""The GPU catalogue: data sheets and their lookup."""

from .catalogue import GPU, find_gpu, gpus

__all__ = ["GPU", "find_gpu", "gpus"]
