"""The importer of MIOpen's convolutions: sides and directions on made-up rows, and the real table if it is at hand."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from joulecast import Operation
from joulecast.datasets import load, save
from joulecast.datasets.importers.miopen2024 import import_miopen2024
from joulecast.errors import DatasetError, InputError
from joulecast.predictors.measured.splits import variants


def row(direction="F", **changes):
    """3 x 3, stride 2, padding 1: 16 x 56 x 56 becomes 32 x 28 x 28."""
    one, other = {"c": 16, "h": 56, "w": 56}, {"k": 32, "out_h": 28, "out_w": 28}
    if direction != "F":
        one, other = {"c": 32, "h": 28, "w": 28}, {"k": 16, "out_h": 56, "out_w": 56}
    values = {
        "gpu": "AMD Instinct MI210",
        "precision": "fp16",
        "direction": direction,
        "solver": "ConvAsm",
        **one,
        **other,
    }
    values |= {"r": 3, "s": 3, "n": 4, "groups": 1, "time_us": 50.0}
    values |= dict.fromkeys(("pad_h", "pad_w", "dilation_h", "dilation_w"), 1) | {"stride_h": 2, "stride_w": 2}
    return {**values, **changes}


def imported(tmp_path, listed, **options):
    pq.write_table(pa.Table.from_pylist(listed), tmp_path / "convolutions.parquet")
    return import_miopen2024(tmp_path, **options)


X, W, Y = 4 * 16 * 56 * 56, 32 * 16 * 9, 4 * 32 * 28 * 28


@pytest.mark.parametrize(
    ("letter", "direction", "read", "written"),
    [("F", "forward", X + W, Y), ("B", "input_gradient", Y + W, X), ("W", "weight_gradient", X + Y, W)],
)
def test_directions_have_their_sides(tmp_path, letter, direction, read, written):
    (dataset,) = imported(tmp_path, [row(letter)])
    (m,) = dataset.measurements
    attributes = {
        "out_channels": 32,
        "kernel_size": 3,
        "stride": 2,
        "padding": 1,
        "bias": False,
        "direction": direction,
    }
    assert m.operation == Operation("conv2d", [(4, 16, 56, 56)], attributes, precision="fp16")
    assert m.operation.flops == 2 * Y * 16 * 9
    assert (m.operation.bytes_read, m.operation.bytes_written) == (2 * read, 2 * written)
    assert (m.device_time_s, m.kernel, m.engine) == (pytest.approx(50e-6), "ConvAsm", "MIOpen")
    assert dataset.card.gpu == "AMD Instinct MI210"
    assert load(save(dataset, tmp_path / "saved")) == dataset


def test_a_gradient_is_held_out_with_its_other_precisions():
    attributes = {"out_channels": 32, "kernel_size": 3, "direction": "weight_gradient"}
    gradient = Operation("conv2d", [(4, 16, 56, 56)], attributes, precision="bf16")
    expected = {gradient.replace(precision=precision) for precision in ("fp64", "fp32", "tf32", "fp16", "bf16")}
    assert variants([gradient]) == expected


def test_a_direction_is_no_training_operation():
    attributes = {"out_channels": 32, "kernel_size": 3, "direction": "weight_gradient"}
    with pytest.raises(InputError, match="forward and backward together"):
        Operation("conv2d", [(4, 16, 56, 56)], attributes, mode="training")


def test_impossible_rows_are_left_out_and_counted(tmp_path):
    # 2 x 4 x 32 x 28 x 28 x 144 = 28.9 MFLOP at 181 TFLOP/s: 0.16 us, and 0.07 with Winograd's fewer multiplications.
    rows = [row(), row(time_us=0.0), row(out_h=27), row(time_us=0.06), row(time_us=0.1)]
    (dataset,) = imported(tmp_path, rows)
    assert [m.line for m in dataset.measurements] == [1, 5]
    counted = {limit for limit in dataset.card.limits if "left out" in limit}
    assert counted == {
        "1 rows left out: times of 0, too short for the clock",
        "1 rows left out: sizes that do not fit each other",
        "1 rows left out: times that the data sheet does not allow",
    }


@pytest.mark.parametrize("changes", [{"gpu": "MI50"}, {"direction": "X"}, {"precision": "int4"}])
def test_unknown_words_are_refused(tmp_path, changes):
    with pytest.raises(DatasetError, match="row 1: unknown"):
        imported(tmp_path, [row(**changes)])


def test_the_real_table(miopen2024):
    datasets = import_miopen2024(miopen2024, rows=2_000)
    assert [dataset.card.gpu for dataset in datasets] == ["AMD Instinct MI210", "AMD Instinct MI250X"]
    operations = [m.operation for dataset in datasets for m in dataset.measurements]
    assert 1_950 < len(operations) <= 2_000
    assert Counter(o.attributes["direction"] for o in operations).most_common()[-1][1] > 600
    assert {o.precision for o in operations} == {"fp32", "fp16", "bf16"}
