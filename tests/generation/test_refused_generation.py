"""What text, images and choices of GPUs refuse: each refusal names the fault, the value given and a way on."""

import contextlib

import pytest

from joulecast import best_generation, predict_generation, predict_image
from joulecast.errors import InputError, JoulecastError

LLAMA = {"model": "llama3_8b", "gpu": "H100 SXM", "batch": 32, "prompt_tokens": 300, "output_tokens": 300}
MIXTRAL = {"model": "mixtral_8x7b", "gpu": "H200"}
EAGER = {"engine": "transformers"}
SEEING = {"model": "Qwen/Qwen3-VL-8B-Instruct", "gpu": "H200", "batch": 1}
SIZE = "no image has this size"
TEXT = [
    ({"model": "gpt2", "gpu": "T4"}, "does not support bf16"),
    ({"gpu": "A100 SXM4 80GB", "precision": "fp8"}, "fp8"),
    ({"precision": "nvfp4"}, r"does not support nvfp4(.|\n)*next:"),
    ({"precision": "mxfp4"}, "experts only"),
    ({"precision": "fp32"}, "precision of weights"),
    ({**MIXTRAL, "gpu": "MI300X", "precision": "fp8"}, "experts in fp8"),
    ({"gpu": "MI300X", "engine": "tensorrt_llm"}, "does not run on"),
    ({**EAGER, "precision": "fp8"}, "16 bits"),
    ({"cache_precision": "int4"}, "precision of a cache"),
    ({"engine": "vllmm"}, "engine"),
    ({"batching": "dynamic"}, "batching"),
    ({**EAGER, "batching": "continuous"}, "batching"),
    ({"output_tokens": (650, 610), "batching": "static"}, "static batch is predicted"),
    ({"output_tokens": [100] * 9 + [9000]}, "longer than the context"),
    ({"prompt_tokens": 8000}, r"longer than the context of llama3_8b(.|\n)*8000 \+ 300 tokens(.|\n)*up to 8192"),
    ({"clock": 99999}, "clock"),
    ({"power_limit_w": 5}, "power"),
    ({"batch": 0}, "positive integer"),
    ({"sampling": "beam"}, "sampling"),
    ({"host": "-3 ms"}, "milliseconds of the host"),
    ({"model": "llama3_1_70b"}, "more GPUs"),
    ({"model": "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"}, r"quantised(.|\n)*qwen3_coder_480b_a35b(.|\n)*next:.*fp8"),
    ({"model": "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4"}, r"quantised(.|\n)*qwen2_5_7b(.|\n)*next:.*gptq"),
    # Several GPUs.
    ({"tensor_parallel": 3}, "collectives were measured"),
    ({"tensor_parallel": 2.0}, r"collectives were measured(.|\n)*tensor_parallel=2.0"),
    ({**MIXTRAL, "expert_parallel": True}, "give another expert_parallel"),
    ({"output_tokens": 1_000_000}, r"300 \+ 1000000 tokens"),
    ({"gpu": "3x H100 SXM", "tensor_parallel": 2}, "whole replicas"),
    ({"gpu": "0x H100 SXM"}, "number of GPUs is out of range"),
    ({"model": "qwen2_7b", "tensor_parallel": 8}, "cannot be divided"),
    ({"expert_parallel": 2}, "has no experts"),
    ({**MIXTRAL, "tensor_parallel": 4, "expert_parallel": 2}, "experts are distributed"),
    ({**EAGER, "tensor_parallel": 2}, "on a single GPU"),
    # Prompts with images.
    ({"model": "qwen3_8b", "images": [(512, 512)]}, "reads images"),
    *(({**SEEING, "images": [size]}, SIZE) for size in ((0, 512), (512,), 512, (10, 4000))),
]
PICTURE = {"model": "flux_1_dev", "gpu": "H100 SXM"}
PICTURES = [
    ({"model": "sd99"}, "image pipeline"),
    ({"height": 1000}, "multiples of 16"),
    ({"model": "sana_1_6b", "height": 1040}, "multiples of 32"),
    ({"steps": 0}, "positive integer"),
    ({"frames": 5}, "which have no frames"),
    ({"model": "wan_2_1_1_3b", "frames": 80}, "one more than a multiple of 4"),
    ({"model": "wan_2_1_1_3b", "frames": True}, "positive integer"),
    ({"precision": "fp8"}, "precision of a pipeline"),
    ({"gpu": "T4"}, "does not fit"),
    ({"gpus": 3}, "1, 2, 4, 8"),
    ({"gpus": 8, "ulysses": 4, "ring": 1}, "give ulysses=8, ring=1"),
    ({"model": "sdxl", "gpus": 2}, "give one GPU"),
    ({"model": "sd3_5_large", "gpus": 8, "ulysses": 8}, "give ulysses=2, ring=4"),
    ({"execution": "quickly"}, "execution"),
]
SERVED = {"model": "llama3_8b", "gpus": ["H100 SXM"], "batches": (1,), "prompt_tokens": 200, "output_tokens": 100}
CHOICES = [
    ({"objective": "watts"}, "objective"),
    ({"objective": "cost"}, "prices"),
    ({"objective": "carbon"}, "carbon intensity"),
    ({"gpus": "H1000"}, "GPU"),
    ({"batches": (0,)}, "positive integer"),
    *(({"counts": counts}, "the number of GPUs is out of range") for counts in ((0,), (-1,), (True,), (1.5,), ("a",))),
    ({"clocks": ()}, "nothing to choose from"),
    ({"max_time_to_first_token_s": -1}, "max_time_to_first_token_s is out of range"),
    ({"max_time_to_first_token_s": 1e-6}, "no GPU serves"),
]
REFUSED = [
    *((predict_generation, {**LLAMA, **options}, says) for options, says in TEXT),
    *((predict_image, {**PICTURE, **options}, says) for options, says in PICTURES),
    *((best_generation, {**SERVED, **options}, says) for options, says in CHOICES),
]


@pytest.mark.parametrize(("function", "options", "says"), REFUSED)
def test_impossible_questions_are_refused(function, options, says):
    with pytest.raises(InputError, match=says) as refused:
        function(**options)
    assert refused.value.given is not None
    assert refused.value.allowed or refused.value.hint


ODD = [None, True, 10**400, float("nan"), "", "x" * 10_000, "\0", [], {}, [1], {"a": 1}, object(), b"x", (1, 2)]


@pytest.mark.parametrize("argument", [
    *LLAMA, "precision", "engine", "tensor_parallel", "expert_parallel", "batching", "clock", "power_limit_w",
    "cache_precision", "sampling", "predictor",
])  # fmt: skip
def test_absurd_arguments_raise_errors_of_joulecast(argument):
    for value in ODD:
        with contextlib.suppress(JoulecastError):
            predict_generation(**{**LLAMA, argument: value})
