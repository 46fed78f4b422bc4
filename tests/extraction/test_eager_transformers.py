"""Transformers with eager attention: their kernels, and FLOPs by hand."""

from collections import Counter

import pytest

import joulecast

# A layer has 12 x hidden^2 weights, 2 FLOPs each and token; scores and their product with the values are 2 x 2 x
# sequence x hidden per token. GPT-2 small: 12 layers of 768. BERT-large: 24 of 1024, and a pooler. ViT-L/16: 24 of 1024
# over 197 tokens, a pooler, and a convolution of 768 x 1024 at 196 places.
FLOPS = [
    ("gpt2_eager", (2, 256), 12 * (2 * 12 * 768**2 + 4 * 256 * 768) * 512),
    ("bert_large_eager", (2, 128), 24 * (2 * 12 * 1024**2 + 4 * 128 * 1024) * 256 + 2 * 2 * 1024**2),
    (
        "vit_large_eager",
        (2, 3, 224, 224),
        2 * (24 * (2 * 12 * 1024**2 + 4 * 197 * 1024) * 197 + 2 * 196 * 768 * 1024 + 2 * 1024 * 768),
    ),
]


@pytest.mark.parametrize(("name", "shape", "flops"), FLOPS, ids=lambda value: str(value))
def test_products_are_counted_and_attention_is_its_kernels(name, shape, flops):
    network = joulecast.extract(name, shape, precision="bf16")
    kinds = Counter({e.operation.kind: 0 for e in network})
    for entry in network:
        kinds[entry.operation.kind] += entry.count
    layers = 12 if name.startswith("gpt2") else 24
    assert (
        sum(e.count * e.operation.flops for e in network if e.operation.kind in ("linear", "matmul", "conv2d")) == flops
    )
    assert (kinds["attention"], kinds["softmax"], kinds["matmul"]) == (0, layers, 2 * layers)


@pytest.mark.parametrize("name", ["gpt2_eager", "bert_large_eager"])
def test_scores_are_masked_in_each_layer(name):
    network = joulecast.extract(name, (2, 64), precision="bf16")
    (masks,) = {
        entry.count
        for entry in network
        if entry.operation.kind == "add" and entry.operation.output_shape[-2:] == (64, 64)
    }
    assert masks == (12 if name.startswith("gpt2") else 24)
