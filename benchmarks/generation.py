"""Compares decoding steps with layers that vidur measured, and times predictions of generation.

    python benchmarks/generation.py layers ../shared/data/vidur2024/layers.parquet
    python benchmarks/generation.py speed

`layers` adds up the four products of a transformer block (queries, keys and values; output; gate and up; down) in fp16.
vidur (MLSys 2024) measured them on H100 and A100 for several models, degrees of tensor parallelism and numbers of
tokens. The predictor of linear layers was trained on another source, so none of these rows is in its training data.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from joulecast import Operation, best_generation, predict_generation
from joulecast.hardware import find_gpu
from joulecast.operations.operation_list import OperationList
from joulecast.zoo.catalogue import find_kernels

PRODUCTS = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


def layers(path: str) -> None:
    """Print the errors of the sum of a block's products, by GPU and tokens."""
    import pandas as pd

    table = pd.read_parquet(path)
    kernels = find_kernels()
    if kernels is None:
        raise SystemExit("the zoo has no any-gpu/kernels")
    print("GPU   tokens  blocks  mean error  mean absolute error")
    for gpu_name, like in (("H100", "H100 SXM"), ("A100", "A100 SXM4 80GB")):
        rows = table[table.gpu.str.startswith(gpu_name) & table.layer.isin(PRODUCTS) & table.tokens.isin(TOKENS)]
        errors: dict[int, list[float]] = {}
        for (_, parts, tokens), block in rows.groupby(["model", "tensor_parallel", "tokens"]):
            measured_s = block.groupby("layer").time_us.median() / 1e6
            if len(measured_s) < len(PRODUCTS):
                continue
            predicted_s = kernels.device_s(_products(block.iloc[0], parts, tokens), find_gpu(like)).sum()
            errors.setdefault(tokens, []).append(predicted_s / measured_s.sum() - 1)
        for tokens, of_tokens in errors.items():
            mean, absolute = np.mean(of_tokens), np.mean(np.abs(of_tokens))
            print(f"{gpu_name}  {tokens:6}  {len(of_tokens):6}  {100 * mean:+9.1f} %  {100 * absolute:16.1f} %")


def _products(row, parts: int, tokens: int) -> OperationList:  # type: ignore[no-untyped-def]
    hidden, size = int(row.hidden), int(row.hidden // row.heads)
    queries, inner = int(row.heads) * size // parts, int(row.intermediate) // parts
    keys = 2 * max(1, int(row.kv_heads) // parts) * size
    sizes = [(hidden, queries + keys), (queries, hidden), (hidden, (2 if row.gated else 1) * inner), (inner, hidden)]
    return OperationList(
        Operation("linear", [(tokens, inputs)], {"out_features": outputs, "bias": False}, precision="fp16")
        for inputs, outputs in sizes
    )


def speed() -> None:
    """Print CPU seconds of a prediction and of a choice among the whole catalogue."""
    predict_generation("qwen3_8b", "H100 SXM", batch=64, prompt_tokens=512, output_tokens=512)
    started = time.process_time()
    for batch in range(100, 120):
        predict_generation("qwen3_8b", "H100 SXM", batch=batch, prompt_tokens=512, output_tokens=512)
    print(f"predict_generation: {1e3 * (time.process_time() - started) / 20:.0f} ms of CPU")
    batches, precisions = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), ("bf16", "fp8", "nvfp4")
    started = time.process_time()
    batch_choices = best_generation(
        "qwen3_8b", prompt_tokens=512, output_tokens=512, batches=batches, precisions=precisions
    )
    print(f"best_generation: {time.process_time() - started:.1f} s of CPU for {len(batch_choices.rows)} ways")


if __name__ == "__main__":
    if sys.argv[1:2] == ["layers"]:
        layers(sys.argv[2])
    else:
        speed()
