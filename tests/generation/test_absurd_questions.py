"""Whatever is asked for any argument, an answer or an error of joulecast comes back."""

import contextlib

import pytest

from joulecast import predict_generation
from joulecast.errors import JoulecastError

ODD = [None, True, 10**400, float("nan"), "", "x" * 10_000, "\0", [], {}, [1], {"a": 1}, object(), b"x", (1, 2)]
QUESTION = {"model": "llama3_8b", "gpu": "H100 SXM", "batch": 8, "prompt_tokens": 128, "output_tokens": 64}


@pytest.mark.parametrize("argument", [
    *QUESTION, "precision", "engine", "tensor_parallel", "expert_parallel", "batching", "clock", "power_limit_w",
    "cache_precision", "sampling", "predictor",
])  # fmt: skip
def test_absurd_arguments_raise_errors_of_joulecast(argument):
    for value in ODD:
        with contextlib.suppress(JoulecastError):
            predict_generation(**{**QUESTION, argument: value})
