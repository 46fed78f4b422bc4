"""Steps that the simulator looks up in its tables, against the same steps predicted whole.

    python benchmarks/traffic_steps.py

Models, GPUs, precisions, engines, clocks and caps are those of `SERVED`; batches, contexts, prompts, chunks and earlier
tokens are drawn, their logarithms evenly. A row takes a second. traffic.py puts them into its report.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from joulecast.generation.generate import server_of
from joulecast.generation.serving import Lengths
from joulecast.generation.steps import StepTokens
from joulecast.traffic.step_costs import PredictedSteps

HEADER = ("model", "GPUs", "precision", "other", "decode: time", "joules", "with prompts: time", "joules")
SERVED: tuple[tuple[str, str, str, int, dict[str, Any]], ...] = (
    ("qwen3_8b", "H100 SXM", "bf16", 64, {}),
    ("llama3_1_8b", "H100 SXM", "fp8", 256, {}),
    ("llama3_1_70b", "4x H100 SXM", "bf16", 128, {}),
    ("qwen3_30b_a3b", "H100 SXM", "bf16", 256, {}),
    ("gpt_oss_20b", "H100 SXM", "mxfp4", 128, {}),
    ("gemma3_12b", "H100 SXM", "bf16", 64, {}),
    ("qwen3_8b", "H100 SXM", "bf16", 64, {"engine": "tensorrt_llm"}),
    ("llama3_1_8b", "H100 SXM", "bf16", 64, {"clock": 1400.0}),
    ("qwen3_14b", "H100 SXM", "bf16", 128, {"power_limit_w": 400.0}),
    ("deepseek_r1", "8x H200", "fp8", 128, {}),
    ("qwen3_32b", "B200", "fp8", 256, {}),
    ("llama3_1_8b", "A100 SXM 80GB", "bf16", 64, {}),
    ("llama3_1_8b", "L40S", "bf16", 64, {}),
    ("qwen3_8b", "RTX 4090", "bf16", 32, {}),
    ("llama3_1_8b", "MI300X", "bf16", 128, {}),
)
COUNT = 40  # Steps of each row, and as many with prompts.
_CONTEXT, _PROMPTS = 4000, 8
_NAMES = (
    "clock",
    "tensor_parallel",
    "cache_precision",
    "power_limit_w",
    "sampling",
    "host",
    "calibration",
    "predictor",
)


def drawn(random_: random.Random, low: int, high: int) -> int:
    """An integer whose logarithm is drawn evenly."""
    return round(low * (high / low) ** random_.random())


def errors(model: str, gpu: str, precision: str, sequences: int, options: dict[str, Any]) -> tuple[Any, Any]:
    """Errors in % of seconds and joules, shape (steps, 2): of steps that decode, and of steps with prompts."""
    asked = {"model": model, "gpu": gpu, "precision": precision, "engine": "vllm", "expert_parallel": 1}
    asked = {**dict.fromkeys(_NAMES), **asked, **options}
    server = server_of(asked, 1, Lengths(500, 0, 500), Lengths(300, 0, 300), "continuous")
    clock_mhz = server.gpu.checked_clock_mhz(asked["clock"])
    tables, random_ = PredictedSteps.of(server, clock_mhz, sequences, _CONTEXT), random.Random(6)
    steps = []
    for _ in range(COUNT):
        decoding, context = drawn(random_, 1, sequences), drawn(random_, 65, _CONTEXT)
        steps.append((StepTokens(decoding, context, sampled=decoding), tables.decode(decoding, context)))
    for place in range(COUNT):
        decoding = 0 if place % 3 == 0 else drawn(random_, 1, sequences - _PROMPTS)
        context, prompts = drawn(random_, 65, _CONTEXT) if decoding else 0, drawn(random_, 1, _PROMPTS)
        chunk = drawn(random_, 16, (server.deployment.engine.step_tokens - sequences) // prompts)
        earlier, sampled = random_.choice((0, drawn(random_, 16, _CONTEXT))), decoding + prompts
        pairs = prompts * chunk * (earlier + chunk / 2)
        looked_up = tables.mixed(decoding, context, prompts, prompts * chunk, pairs, sampled)
        steps.append((StepTokens(decoding, context, prompts, chunk, earlier, sampled), looked_up))
    server.prepare(step for step, _ in steps)
    off = []
    for step, (time_s, energy_j) in steps:
        whole_s, whole_j = server.cost(step, [clock_mhz])[:, 0]
        off.append((time_s / whole_s - 1, energy_j / (tables.boards * whole_j) - 1))
    return tuple(np.split(100 * np.array(off), 2))


def rows() -> Iterator[list[str]]:
    """A row for each model, with mean and P95 of absolute errors in %, and one for all."""
    every = []
    for model, gpu, precision, sequences, options in SERVED:
        off = errors(model, gpu, precision, sequences, options)
        every.append(off)
        yield [model, gpu, precision, " ".join(map(str, options.values())), *_cells(off)]
    yield ["all", "", "", "", *_cells([np.concatenate(each) for each in zip(*every, strict=True)])]


def _cells(errors: Sequence[Any]) -> list[str]:
    absolute = [abs(each[:, place]) for each in errors for place in (0, 1)]
    return [f"{each.mean():.2f}, {np.quantile(each, 0.95):.2f}" for each in absolute]


if __name__ == "__main__":
    for row in (list(HEADER), *rows()):
        print(" | ".join(row), flush=True)
