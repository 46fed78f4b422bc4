"""Importer of AITER's kernels: operations by hand on made-up rows, and the checkerboard of what is held back."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets.importers.aiter2026 import import_aiter2026
from joulecast.errors import DatasetError

MI300X = {"gpu": "AMD Instinct MI300X", "precision": "fp8", "kernel": "a8w8", "time_us": 50.0}
# 2^12 and 2^11: an odd field of the checkerboard, which is learned from.
PRODUCT = {**MI300X, "m": 64, "n": 4096, "k": 2048, "quantisation": "1x128 and 128x128"}
LAYER = {**MI300X, "tokens": 32, "hidden": 4096, "intermediate": 2048, "experts": 128, "top_k": 8}
LAYER |= {"quantisation": "per_1x128"}


@pytest.fixture
def imported(tmp_path):
    def read(*products, layers=(), **options):
        for name, rows, form in (("gemm", products, PRODUCT), ("experts", layers, LAYER)):
            table = pa.table({column: [(form | row)[column] for row in rows or [{}]] for column in form})
            pq.write_table(table, tmp_path / f"{name}.parquet")
        (dataset,) = import_aiter2026(tmp_path, **options)
        return dataset

    return read


def test_rows_are_operations_of_a_tuned_engine(imported):
    unscaled = {"precision": "bf16", "quantisation": "No"}
    in_blocks, plain = imported({}, {"quantisation": "per token"}).measurements
    layer = {"out_features": 4096, "bias": False}
    assert in_blocks.operation == Operation("linear", [(64, 2048)], {**layer, "block_scaled": True}, precision="fp8")
    assert plain.operation == Operation("linear", [(64, 2048)], layer, precision="fp8")
    *_, experts, unquantized = imported({"k": 4096}, layers=[{}, unscaled], held_back=True).measurements
    sizes = {"intermediate": 2048, "experts": 128, "top_k": 8}
    assert experts.operation == Operation("experts", [(32, 4096)], {**sizes, "block_scaled": True}, precision="fp8")
    assert unquantized.operation == Operation("experts", [(32, 4096)], sizes, precision="bf16")
    assert (in_blocks.device_time_s, in_blocks.engine, in_blocks.kernel) == (pytest.approx(50e-6), "AITER", "a8w8")


def test_all_rows_of_a_size_and_of_its_neighbours_are_on_one_side(imported):
    products = [{}, {"m": 8192}, {"k": 3072}, {"n": 5120}, {"k": 4096}, {"n": 8192}, {"n": 8192, "k": 4096}]

    def side(**options):
        operations = [m.operation for m in imported(*products, layers=[], **options).measurements]
        return [(*o.input_shapes[0], o.attributes["out_features"]) for o in operations if o.kind == "linear"]

    learned = [(64, 2048, 4096), (8192, 2048, 4096), (64, 3072, 4096), (64, 2048, 5120), (64, 4096, 8192)]
    assert side(held_back=False) == learned
    assert side(held_back=True) == [(64, 4096, 4096), (64, 2048, 8192)]


def test_the_card_says_what_was_left_out(imported):
    dataset = imported({}, {"k": 4096}, {"precision": "int8"}, {"gpu": "AMD Instinct MI308X"})
    assert dataset.card.gpu == "AMD Instinct MI300X"
    said = "\n".join(dataset.card.limits)
    assert "gemm: 1 rows left out: held back to judge predictions" in said
    assert "gemm: 1 rows left out: in int8, which nothing predicts" in said
    with pytest.raises(DatasetError, match="precision"):
        imported({"precision": "fp4"})
