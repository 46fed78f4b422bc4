"""How good predictions of training steps are that NVIDIA tuned: Megatron Bridge on H100, in fp8.

    python benchmarks/megatron.py ../shared/data

Reads megatron2026 and, for joules at the plug, mlperftraining2025. Writes benchmarks/training/MEGATRON.md; takes two
minutes on one core.
"""

from __future__ import annotations

import csv
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import joulecast
from joulecast.runs.run import Run, wall_energy_j

_MODELS = {
    "LLAMA3_8B": "llama3_8b",
    "LLAMA3_70B": "llama3_70b",
    "LLAMA3.1_405B": "llama3_1_405b",
    "Qwen3_30B_a3B": "qwen3_30b_a3b",
    "Qwen3_235B_a22B": "qwen3_235b_a22b",
}
_LAYOUT = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel", "virtual_pipeline")
_NOTES = """# Megatron's training steps on H100

Made by `python benchmarks/megatron.py FOLDER`; do not edit.

**What was measured.** Tokens per second and GPU that NVIDIA published for Megatron Bridge (Apache-2.0, commit
067f987d), by release; a vendor's tuned best. One row for each way to run, with the range over releases, of which the
best is compared: software alone changed some ways by 1.8 times.

**What is predicted.** The same step with `precision="fp8"`, `execution="compiled"` (Megatron fuses point-wise
operations), `optimizer="adamw_fused"`, FSDP or ZeRO-1, and low-rank adapters of rank 16 in peft's default layers.
All rows were looked at. What they showed: messages between stages carry each GPU's part, in fp8 sums over GPUs go on
beside products, and tokens are sent to each node once (DeepEP). One constant was set with Qwen3 30B-A3B: what a layer
of experts waits for its host, 1.1 ms a pass; Qwen3 235B-A22B was left out. What Megatron does and a prediction does
not: fused routers. Tokens choose experts evenly in a prediction.

"""


_MLPERF_NOTES = """
## MLPerf, and joules at the plug

Steps between evaluations, and of SMC's servers (immersed, 8 H100) the median watts of a node and the joules of whole
runs, per sample, with evaluations and start (`mlperf.csv` and mlperftraining2025). Llama 2 70B is fine-tuned by
low-rank adapters in fp8 with 8192 tokens, GPT-3 175B trained with 2048.

**What was learned.** In round 4.0 Python launches the layers of Transformer Engine (`execution="eager"`); in 4.1 they
are CUDA graphs ("compiled"). One constant was set with NVIDIA's runs: what the host launches in a forward, 2.3 ms for
each attention or feed-forward of these servers, read from evaluations. Where steps are short, that is what a step costs
besides: with graphs, steps on 64 and 1,024 GPUs are as long as their kernels. SMC's runs had been looked at before, but
nothing was fitted to them. GPT-3 was predicted once.

**The start.** Until the first step NVIDIA's runs take 11.3 s on 8, 64 and 1,024 GPUs alike, while processes that read
data start, and their first steps take 6.0 s longer than as many later ones (5.6, 5.2 and 7.3). A prediction lacks both.
For whole runs they are added here, at static power; they are 17 of 318 s on 64 GPUs and of 117 s on 512.

"""
_START_S = 17.3  # See above
_EVALUATED = 173  # Sequences of an evaluation
_GPT3 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_positions": 2048,
    "vocab_size": 51200,
    "n_embd": 12288,
    "n_layer": 96,
    "n_head": 96,
}


def mlperf(path: Path) -> list[str]:
    """A table of steps of MLPerf and, where watts were published, of a node's watts and joules of a sample."""
    measured = defaultdict(list)
    for row in _rows(path):
        if row["power_reading"].startswith("AC"):
            values = float(row["node_w_median"]), float(row["energy_per_sample_j"]), float(row["samples"])
            measured[row["benchmark"], row["nodes"], "SMC"].append(values)
    lines = ["| run | nodes | step in ms | watts of a node | joules per sample |", "| --- | --- | --- | --- | --- |"]
    errors = []
    for row in _rows(Path(__file__).with_name("training") / "mlperf.csv"):
        watts = measured[row["benchmark"], row["nodes"], row["submitter"]]
        power_w, joules, samples = map(statistics.median, zip(*watts, strict=True)) if watts else (0.0, 0.0, 1e3)
        run = _of_mlperf(row, samples)
        parts = [part for part in run.parts if part.name != "evaluation"]
        seconds, boards_j = (math.fsum(getattr(part, name) for part in parts) for name in ("time_s", "energy_j"))
        pairs = [(1e3 * seconds / run.steps, 1e3 * float(row["step_s"]))]
        ratio = pairs[0][0] / pairs[0][1]
        errors.append((ratio - 1, _holds(run, 1 / ratio)))
        if watts:
            pairs.append((wall_energy_j(seconds, boards_j, run.servers_w) / seconds / run.layout.nodes, power_w))
        if watts and row["evaluations"]:
            start_j = wall_energy_j(_START_S, _START_S * run.micro.idle_power_w * run.layout.gpus, run.servers_w)
            pairs.append(((run.wall_energy_j + start_j) / samples, joules))
        cells = [f"{found:,.4g} for {was:,.4g}, {100 * (found / was - 1):+.0f} %" for found, was in pairs]
        name = f"{row['submitter']} {row['round']}, {row['benchmark']}"
        lines.append(f"| {name} | {row['nodes']} | {' | '.join([*cells, '', ''][:3])} |")
    return [*lines, "", f"Steps: {_summary(errors)}", ""]


def _of_mlperf(row: Mapping[str, str], samples: float) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        path, lora = Path(folder) / "config.json", row["benchmark"] == "llama2_70b_lora"
        path.write_text(json.dumps(_GPT3), encoding="utf-8")
        return joulecast.predict_run(
            "llama2_70b" if lora else path,
            (int(row["batch"]), 8192 if lora else 2048),
            f"{8 * int(row['nodes'])}x H100 SXM",
            samples=samples,
            evaluation_samples=_EVALUATED * int(row["evaluations"] or 0),
            precision="fp8",
            lora=16 if lora else None,
            optimizer="adamw_fused",
            sharding="none" if lora else "zero1",
            accumulation=int(row["accumulation"]),
            tensor_parallel=int(row["tensor"]),
            context_parallel=int(row["context"]),
            pipeline_parallel=int(row["pipeline"]),
            virtual_stages=int(row["parts"]),
            execution="compiled" if row["graphs"] == "yes" else "eager",
        )


def _holds(run: Run, ratio: float) -> bool:
    """Whether the 90 % interval of its time holds what was published: so many times what is predicted."""
    low, high = run.interval(0.9).time_s
    return low <= ratio * run.time_s <= high


def _summary(errors: Sequence[tuple[float, bool]]) -> str:
    percent = [100 * abs(error) for error, _ in errors]
    mean, median = statistics.mean(percent), statistics.median(percent)
    sizes = f"{mean:.0f} % in the mean, {median:.0f} % in the median, {max(percent):.0f} % at worst"
    return f"{sizes}; {sum(held for _, held in errors)} of {len(errors)} within their 90 % intervals."


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def main(folder: Path) -> None:
    runs = defaultdict(list)
    for row in _rows(folder / "megatron2026/training.csv"):
        name = row["model"].partition(" (")[0]
        if name in _MODELS and not row["suspect"]:
            sizes = (row[each] or "1" for each in ("gpus", "global_batch", "micro_batch", "sequence", *_LAYOUT))
            runs[name, row["phase"], *sizes, row["fsdp"] not in ("", "0")].append(float(row["tokens_per_s_per_gpu"]))
    lines = [
        "| model | GPUs | TP, PP, CP, EP, parts | batch | published tokens/s per GPU | predicted | error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    errors = defaultdict(list)
    for (name, phase, *sizes, fsdp), published in sorted(runs.items()):
        gpus, batch, micro, sequence, tensor, pipeline, context, expert, parts = map(int, sizes)
        run = joulecast.predict_run(
            _MODELS[name],
            (batch, sequence),
            f"{gpus}x H100 SXM",
            samples=batch,
            precision="fp8",
            lora=16 if phase == "LoRA" else None,
            optimizer="adamw_fused",
            accumulation=batch // (gpus // tensor // pipeline // context) // micro,
            sharding="zero3" if fsdp else "zero1",
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            context_parallel=context,
            expert_parallel=expert,
            virtual_stages=parts,
            execution="compiled",
        )
        rate, best = (run.tokens_per_s or 0.0) / gpus, max(published)
        errors["experts" if expert > 1 else "dense"].append((rate / best - 1, _holds(run, rate / best)))
        spread = f"{min(published):,.0f} to {max(published):,.0f}" if len(published) > 1 else f"{best:,.0f}"
        lines.append(
            f"| {name}, {phase} | {gpus} | {tensor}, {pipeline}, {context}, {expert}, {parts} | {batch} x {sequence} "
            f"| {spread} | {rate:,.0f} | {100 * (rate / best - 1):+.0f} % |"
        )
    lines.append("")
    for name, some in errors.items():
        lines.append(f"{len(some)} ways to run {name} models: {_summary(some)}\n")
    lines += [_MLPERF_NOTES, *mlperf(folder / "mlperftraining2025/runs.csv")]
    Path(__file__).with_name("training").joinpath("MEGATRON.md").write_text(_NOTES + "\n".join(lines), encoding="utf-8")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
