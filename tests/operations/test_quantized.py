"""Quantized operations, attention with windows and caches: work by hand, what is refused, and what JSON leaves out."""

import pytest

from joulecast.errors import InputError
from joulecast.operations.operation import Operation

M, N, K = 64, 256, 512


def linear(precision, **attributes):
    return Operation("linear", [(M, K)], {"out_features": N, "bias": False, **attributes}, precision=precision)


# Inputs and weights in the precision, the output in two bytes; nvfp4 has a byte of scale for 16 elements of half a
# byte each.
@pytest.mark.parametrize(
    ("operation", "read"),
    [
        (linear("bf16"), 2 * (M * K + N * K)),
        (linear("fp8"), M * K + N * K),
        (linear("int8"), M * K + N * K),
        (linear("nvfp4"), (M * K + N * K) * 9 // 16),
        # Four bytes for each 128 elements of a row, and for each 128 x 128 of the weights: 2 x 4 squares.
        (linear("fp8", block_scaled=True), M * K + N * K + 4 * (M * 4) + 4 * (2 * 4)),
    ],
    ids=lambda value: getattr(value, "precision", ""),
)
def test_bytes_of_quantized_products(operation, read):
    assert operation.bytes_read == read
    assert operation.bytes_written == 2 * M * N
    assert operation.flops == 2 * M * N * K


def attention(queries=1, keys=1024, heads=32, kv_heads=8, **attributes):
    shapes = [(4, heads, queries, 128), (4, kv_heads, keys, 128), (4, kv_heads, keys, 128)]
    return Operation("attention", shapes, attributes, precision="bf16")


def test_a_step_of_decoding_reads_its_cache_once():
    q, cache = 4 * 32 * 128, 2 * 4 * 8 * 1024 * 128
    assert attention().bytes_read == 2 * (q + cache)
    assert attention(cache_precision="fp8").bytes_read == 2 * q + cache
    # Of 1024 keys a query sees the last 128.
    assert attention(window=128).bytes_read == 2 * (q + cache // 8)
    assert attention().flops == 2 * 4 * 32 * 1024 * (128 + 128)
    assert attention(window=128).flops == attention().flops // 8


def test_a_window_that_moves_over_all_keys_reads_them_all():
    whole, windowed = attention(1024, causal=True), attention(1024, causal=True, window=128)
    assert windowed.bytes_read == whole.bytes_read
    # 1 to 1024 keys are seen; with the window 1 to 128, and 128 by the other 896 queries.
    assert whole.flops == 4 * 32 * 4 * 128 * (1024 * 1025 // 2)
    assert windowed.flops == 4 * 32 * 4 * 128 * (128 * 129 // 2 + 896 * 128)


def test_attention_computes_its_scores_again_in_the_backward():
    """Two products forward (scores, values), four backward (the gradients of v, scores, q and k), and scores again."""
    product = 2 * 2 * 8 * 100 * 100 * 64
    forward = Operation("attention", [(2, 8, 100, 64)] * 3)
    assert forward.flops == forward.executed_flops == 2 * product
    training = forward.replace(mode="training")
    assert (training.flops, training.executed_flops) == (6 * product, 7 * product)


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes"),
    [("relu", [(4, 4)], {}), ("conv2d", [(1, 8, 8, 8)], {"out_channels": 8, "kernel_size": 3})],
)
def test_kinds_without_quantized_kernels_refuse_them(kind, shapes, attributes):
    with pytest.raises(InputError, match=f"{kind} does not run in fp8") as caught:
        Operation(kind, shapes, attributes, precision="fp8")
    assert "bf16" in str(caught.value.allowed)


def test_refinements_are_written_only_where_they_say_something():
    plain = linear("bf16")
    assert plain.to_dict()["attributes"] == {"bias": False, "out_features": N}
    # The digest from before these attributes existed. Stored predictors find their operations by it: if it changes, so
    # must the zoo's format version.
    assert Operation("linear", [(32, 128)], {"out_features": 64}).digest == "e56b3c69f1a48556"
    engine = linear("bf16", implementation="vllm")
    assert engine.to_dict()["attributes"]["implementation"] == "vllm"
    assert engine != plain
    assert engine.digest != plain.digest
    for operation in (plain, engine, attention(window=128, cache_precision="fp8")):
        assert Operation.from_dict(operation.to_dict()) == operation
