"""How good predictions of training steps are that NVIDIA tuned: Megatron Bridge on H100, in fp8.

    python benchmarks/megatron.py ../shared/data/megatron2026/training.csv

Writes benchmarks/training/MEGATRON.md; takes two minutes on one core.
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

Made by `python benchmarks/megatron.py FILE`; do not edit.

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


def main(path: Path) -> None:
    runs = defaultdict(list)
    with path.open(encoding="utf-8") as file:
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
    Path(__file__).with_name("training").joinpath("MEGATRON.md").write_text(_NOTES + "\n".join(lines), encoding="utf-8")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
