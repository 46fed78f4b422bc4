"""ML.ENERGY's runs of vLLM 0.11.1 as they were made, for all reports that compare with them.

All requests of a run are sent at once, and `max_num_seqs` of them run at a time. Joules and throughput are those from
the first token of the `max_num_seqs`-th request to the moment at which as many requests, and one more, are left;
latencies between tokens are those of the whole run (github.com/ml-energy/benchmark, mlenergy/llm/benchmark.py, and
github.com/ml-energy/data, mlenergy_data/records/runs.py).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import numpy as np

from joulecast.arrays import FloatArray

MODELS = {
    "Qwen/Qwen3-14B": "qwen3_14b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507": "qwen3_235b_a22b",
    "Qwen/Qwen3-235B-A22B-Thinking-2507": "qwen3_235b_a22b",
    "Qwen/Qwen3-30B-A3B-Instruct-2507": "qwen3_30b_a3b",
    "Qwen/Qwen3-30B-A3B-Thinking-2507": "qwen3_30b_a3b",
    "google/gemma-3-27b-it": "gemma3_27b",
    "meta-llama/Llama-3.1-70B-Instruct": "llama3_1_70b",
    "meta-llama/Llama-3.3-70B-Instruct": "llama3_1_70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama3_1_8b",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "nemotron_nano_9b_v2",
    "openai/gpt-oss-20b": "gpt_oss_20b",
    "Qwen/Qwen3-VL-8B-Instruct": "qwen3_vl_8b",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "qwen3_30b_a3b",
    "Qwen/Qwen3-VL-32B-Instruct": "qwen3_32b",
    "Qwen/Qwen3-Omni-30B-A3B-Instruct": "qwen3_30b_a3b",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3_30b_a3b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": "qwen3_coder_480b_a35b",
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": "qwen3_coder_480b_a35b",
}
DATA_PARALLEL = frozenset({"Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8"})
"""Models whose configuration names data-parallel-size: GPUs share experts, and have sequences of their own."""
SEEN = frozenset({"llama3_1_8b", "qwen3_14b", "gpt_oss_20b"})
"""Models that are shown: those by which constants and assumptions were chosen. All others are held back but for"""
HYBRID = "nemotron_nano_9b_v2"
"""whose scans are assumed, as no kernel of them was measured; on H100 its chats set what they wait for."""

CODE = "sourcegraph-fim"
PROMPTS = {"lm-arena-chat": (300, 600), "gpqa": (300, 150), "image-chat": (120, 200), CODE: (2000, 2000)}
"""Mean and standard deviation of the text of prompts in tokens, which are not published. That beside images is a guess,
that of code the one with which Qwen3-Coder 480B in bf16 is right."""
IMAGE = 832, 832
"""Height and width of the image of a prompt: a guess, with which a prompt of Qwen3-VL has 800 tokens."""

TEXT = ("lm-arena-chat", "gpqa")
"""Tasks without images."""

REQUESTS = {"lm-arena-chat": 1024, "gpqa": 198, "image-chat": 1024, CODE: 1024}
"""Different requests of a task (configs/vllm/TASK/benchmark.yaml)."""

_CHATS, _GPQA = {512: 2, 1536: 3, 3072: 4, 4096: 5}, {192: 2, 384: 3, 768: 5, 1024: 6, 1536: 9, 2048: 11, 4096: 21}
_REPEATS = {
    ("lm-arena-chat", "Qwen/Qwen3-30B-A3B-Instruct-2507", "B200"): {256: 2, 1536: 3},
    ("lm-arena-chat", "meta-llama/Llama-3.1-8B-Instruct", "B200"): {128: 2, 512: 3, 1024: 4, 2048: 8},
    ("lm-arena-chat", "meta-llama/Llama-3.1-8B-Instruct", "H100"): {256: 2, 768: 3},
    ("gpqa", "openai/gpt-oss-20b", "H100"): {96: 2, **_GPQA},
    (CODE, "Qwen/Qwen3-Coder-30B-A3B-Instruct", "B200"): {64: 2, 256: 4, 1024: 6},
    (CODE, "Qwen/Qwen3-Coder-30B-A3B-Instruct", "H100"): {192: 2, 384: 3, 768: 4},
    (CODE, "Qwen/Qwen3-Coder-480B-A35B-Instruct", "B200"): {512: 2, 1024: 4, 1536: 6},
    (CODE, "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8", "B200"): {768: 2, 1024: 3, 2048: 4},
}
"""Least `max_num_seqs` -> how often the requests are sent (configs/vllm/TASK/MODEL/GPU/sweeps.yaml). Where it was more,
the mean output length, a sum divided by the number of requests, says so. With these, the requests of all runs are as
many as output_lengths.csv has of each model, but for one of 105 times of GPT-OSS."""

_MOST_READING = 0.03
STEADY = 1.25
"""Spread of a run whose host was steady, at most. That of 40 runs on H100 is 1.02 to 1.20, that of 18 on 2 to 8 B200
1.03 to 1.22, and that of all 28 on one B200, as of one on 8, 1.31 to 3.5: their steps waited for the host."""

PRECISIONS = {"bfloat16": "bf16", "fp8": "fp8", "mxfp4": "mxfp4"}


@dataclass(frozen=True)
class Run:
    """A published run, by column, and the lengths of its model's outputs."""

    row: Mapping[str, str]
    lengths: Sequence[tuple[float, float, float]]  # (from tokens, to tokens, requests)

    def __getitem__(self, name: str) -> str:
        return self.row[name]

    def number(self, name: str) -> float:
        """A column as a number."""
        return float(self.row[name])

    @property
    def model(self) -> str:
        """Its model's name here."""
        return MODELS[self["model"]]

    @property
    def gpu(self) -> str:
        """Name of the GPU, without the maker's."""
        return self["gpu"].split()[1]

    @property
    def most(self) -> int:
        """Sequences that may run at a time."""
        return int(self["max_num_seqs"])

    @property
    def spread(self) -> float | None:
        """Of the times between tokens, the 95th percentile over the median; None if many steps read prompts.

        A request reads its prompt in one step, so below 3 % both are times of steps that only decode, which kernels
        make as long as each other.
        """
        reading = self.number("avg_batch_size") / self.number("avg_output_len")
        return None if reading > _MOST_READING else self.number("p95_itl_ms") / self.number("median_itl_ms")

    @property
    def asked(self) -> dict[str, str | int]:
        """Options of `simulate_serving` and `predict_generation` that say what was run."""
        gpus, expert = int(self["gpus"]), int(self["expert_parallel"])
        return {
            "model": self.model,
            "gpu": f"{gpus}x {self['gpu']}",
            "precision": PRECISIONS[self["weight_precision"]],
            "engine": "vllm_async",
            "tensor_parallel": gpus
            if expert > 1 and self["model"] not in DATA_PARALLEL
            else int(self["tensor_parallel"]),
            "expert_parallel": expert,
        }

    @cached_property
    def requests(self) -> int:
        """Requests that were sent."""
        each = REQUESTS[self["task"]]
        usual = _GPQA if self["task"] == "gpqa" else _CHATS
        table = _REPEATS.get((self["task"], self["model"], self.gpu), usual)
        least = max((times for size, times in table.items() if size <= self.most), default=1)
        mean = self.number("avg_output_len") * each
        divisor = next((n for n in range(1, 2 * least + 2) if abs(n * mean - round(n * mean)) < 1e-4), 1)
        return each * divisor * math.ceil(Fraction(least, divisor))

    def outputs(self, count: int, random: np.random.Generator) -> FloatArray:
        """Lengths of outputs, drawn from those of its model, with the mean of this run."""
        low, high, many = np.array(self.lengths).T
        drawn = random.choice(len(many), count, p=many / many.sum())
        found: FloatArray = low[drawn] + random.random(count) * (high - low)[drawn]
        return found * (self.number("avg_output_len") / np.average((low + high) / 2, weights=many))


def unsteady(run: Run, others: Iterable[Run]) -> bool:
    """Whether the host was unsteady: of this run, or else of the largest smaller batch of which it can be said.

    `others`: Runs among which are those of the same model, task and number of boards.
    """
    alike = ("task", "model", "gpu", "gpus")
    known = [
        (each.most, each.spread)
        for each in others
        if each.spread and each.most <= run.most and all(each[name] == run[name] for name in alike)
    ]
    return bool(known) and max(known)[1] > STEADY


def runs(folder: Path, *, seen_only: bool = False, tasks: Sequence[str] = TEXT) -> Iterator[Run]:
    """Runs of some tasks, of models that are known by name."""
    lengths: dict[tuple[str, str], list[tuple[float, float, float]]] = defaultdict(list)
    with (folder / "output_lengths.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            span = float(row["from_tokens"]), float(row["to_tokens"]), float(row["requests"])
            lengths[row["task"], row["model"]].append(span)
    with (folder / "served.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["task"] in tasks and row["model"] in MODELS and not (seen_only and MODELS[row["model"]] not in SEEN):
                yield Run(row, lengths[row["task"], row["model"]])
