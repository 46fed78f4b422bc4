"""How good predictions of training steps are that NVIDIA tuned: Megatron Bridge on H100, in fp8.

    python benchmarks/megatron.py ../shared/data

Reads megatron2026 and, for joules at the plug, mlperftraining2025. Writes benchmarks/training/MEGATRON.md; takes two
minutes on one core.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections import defaultdict
from pathlib import Path

import joulecast

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


_PLUG_NOTES = """
## Joules at the plug

MLPerf 4.0 published samples per second and watts of whole nodes (SMC, 8 to 512 H100) for fine-tuning Llama 2 70B by
low-rank adapters in fp8, with 8192 tokens. Predicted with the same options, TP 4 and CP 2, as training runs outside of
evaluations; nothing was fitted to these runs. On several nodes each replica computes one sample in a step: what a step
costs besides (0.2 s on 8 nodes, 0.4 s on 64) is not predicted.
"""


def at_the_plug(path: Path) -> list[str]:
    """A table of runs of a node, 8 and 64 nodes: samples per second, watts of a node, and joules of a sample."""
    runs = defaultdict(list)
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["benchmark"] == "llama2_70b_lora" and row["power_reading"].startswith("AC"):
                values = float(row["train_samples_per_s"]), float(row["node_w_median"])
                runs[int(row["gpus"]), int(row["global_batch"])].append(values)
    lines = ["| GPUs | samples/s | watts of a node | joules per sample |", "| --- | --- | --- | --- |"]
    for (gpus, batch), measured in sorted(runs.items()):
        rate, node_w = (statistics.median(column) for column in zip(*measured, strict=True))
        run = joulecast.predict_run(
            "llama2_70b",
            (batch, 8192),
            f"{gpus}x H100 SXM",
            samples=batch,
            precision="fp8",
            lora=16,
            optimizer="adamw_fused",
            accumulation=batch * 8 // gpus,
            tensor_parallel=4,
            context_parallel=2,
            execution="compiled",
        )
        pairs = (
            (batch / run.time_s, rate),
            (run.wall_energy_j / run.time_s / (gpus / 8), node_w),
            (run.wall_energy_j / batch, node_w * gpus / 8 / rate),
        )
        cells = (f"{found:,.4g} for {was:,.4g}, {100 * (found / was - 1):+.0f} %" for found, was in pairs)
        lines.append(f"| {gpus} | {' | '.join(cells)} |")
    return [*lines, ""]


def main(folder: Path) -> None:
    runs = defaultdict(list)
    with (folder / "megatron2026/training.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name = row["model"].partition(" (")[0]
            if name in _MODELS and not row["suspect"]:
                columns = ("phase", "precision", "fsdp", "gpus", "global_batch", "micro_batch", "sequence", *_LAYOUT)
                way = (name, row["phase"], *(row[each] or "1" for each in columns[3:]), row["fsdp"] not in ("", "0"))
                runs[way].append(float(row["tokens_per_s_per_gpu"]))
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
        errors["experts" if expert > 1 else "dense"].append(rate / best - 1)
        spread = f"{min(published):,.0f} to {max(published):,.0f}" if len(published) > 1 else f"{best:,.0f}"
        lines.append(
            f"| {name}, {phase} | {gpus} | {tensor}, {pipeline}, {context}, {expert}, {parts} | {batch} x {sequence} "
            f"| {spread} | {rate:,.0f} | {100 * (rate / best - 1):+.0f} % |"
        )
    lines.append("")
    for name, some in errors.items():
        sizes = [100 * abs(each) for each in some]
        lines.append(
            f"{len(some)} ways to run {name} models: {statistics.mean(sizes):.0f} % in the mean, "
            f"{statistics.median(sizes):.0f} % in the median, {max(sizes):.0f} % at worst.\n"
        )
    lines += [_PLUG_NOTES, *at_the_plug(folder / "mlperftraining2025/runs.csv")]
    Path(__file__).with_name("training").joinpath("MEGATRON.md").write_text(_NOTES + "\n".join(lines), encoding="utf-8")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
