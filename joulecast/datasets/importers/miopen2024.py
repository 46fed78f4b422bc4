"""Importer for the convolutions of github.com/ROCm/MIOpen: its table of tuned solvers, on MI210 and MI250X.

Reads `convolutions.parquet`. Each row is one kernel of a convolution's forward (F) or of one of its gradients, of its
input (B) or its weights (W), timed by MIOpen's tuning without a launch. Found in the data:

- Sides. For F, c x h x w is the input and k x out_h x out_w the output, as the shape rule gives it in 99.86 % of the
  rows; for B and W it is the other way round, in 99.7 %. Rows that fit neither were padded unevenly and are left out.
- Times. Times of 0 were too short for the clock. Some rows beat the data sheet by 2 to 140 times, because the time
    belongs to another convolution. Rows that are faster than even Winograd's F(2 x 2, 3 x 3) explains, which needs 2.25
    times fewer multiplications, are left out as well.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from ...errors import InputError
from ...hardware import GPU, find_gpu
from ...operations.operation import Operation
from ...progress import tracked
from ..measurement import Card, Dataset, Measurement
from .reading import importer, read_columns, refuse_unknown, rows_of, sampled

ROWS = 60_000
"""Rows that are read by default."""

_SOURCE = "github.com/ROCm/MIOpen, commit 2d1fd99: its database of tuned convolutions"
_METHOD = "tuned_kernel"
_GPUS = {"AMD Instinct MI210": "MI210", "AMD Instinct MI250X GCD": "MI250X GCD"}
_DIRECTIONS = {"F": "forward", "B": "input_gradient", "W": "weight_gradient"}
_PRECISIONS = ("fp32", "fp16", "bf16")
_WORDS = ("gpu", "precision", "direction", "solver")
_MOVES = ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
_SIZES = ("c", "h", "w", "r", "s", "k", "out_h", "out_w", "n", "groups", *_MOVES)
_WINOGRAD = 2.25
_TOLERANCE = 1.03
_NO_TIME = "times of 0, too short for the clock"
_NO_FIT = "sizes that do not fit each other"
_IMPOSSIBLE = "times that the data sheet does not allow"


@importer
def import_miopen2024(folder: str | Path, *, rows: int | None = ROWS) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its default clock.

    Args:
        folder: The folder that holds convolutions.parquet.
        rows: Most rows to read, sampled evenly from GPUs, precisions and directions; None for all.

    Raises:
        DatasetError: The file is missing or damaged, or has rows of unknown GPUs, precisions or directions.
        MissingDependencyError: pyarrow is not installed.
    """
    path = Path(folder) / "convolutions.parquet"
    columns = read_columns(path, (*_WORDS, *_SIZES, "time_us"))
    known = {"gpu": _GPUS, "precision": _PRECISIONS, "direction": _DIRECTIONS}
    refuse_unknown(columns, path, "GPU, precision or direction", **known)
    left_out: dict[str, Counter[str]] = defaultdict(Counter)
    timed = columns["time_us"] > 0
    for gpu, count in Counter(columns["gpu"][~timed]).items():
        left_out[gpu][_NO_TIME] += count
    taken = sampled(columns, timed, known, rows)
    measurements: dict[str, list[Measurement]] = defaultdict(list)
    for row in tracked(rows_of(columns, taken), "convolutions", len(taken)):
        name = row["gpu"]
        found = _measured(row, find_gpu(_GPUS[name]))
        if isinstance(found, Measurement):
            measurements[name].append(found)
        else:
            left_out[name][found] += 1
    totals = Counter(columns["gpu"])
    return [_dataset(name, measurements[name], totals[name], left_out[name]) for name in sorted(measurements)]


def _operation(row: dict[str, Any]) -> Operation:
    """The convolution of a row. Raises InputError: its sizes do not fit each other."""
    one, other = (row["n"], row["c"], row["h"], row["w"]), (row["n"], row["k"], row["out_h"], row["out_w"])
    given, made = (one, other) if row["direction"] == "F" else (other, one)
    attributes = {
        "out_channels": made[1],
        "kernel_size": (row["r"], row["s"]),
        "stride": (row["stride_h"], row["stride_w"]),
        "padding": (row["pad_h"], row["pad_w"]),
        "dilation": (row["dilation_h"], row["dilation_w"]),
        "groups": row["groups"],
        "bias": False,
        "direction": _DIRECTIONS[row["direction"]],
    }
    operation = Operation("conv2d", [given], attributes, precision=row["precision"])
    if operation.output_shape != made:
        raise InputError("the output of this convolution has other sizes", given=made, allowed=operation.output_shape)
    return operation


def _measured(row: dict[str, Any], gpu: GPU) -> Measurement | str:
    """The measurement of a row, or the reason why the row is left out."""
    try:
        operation = _operation(row)
    except InputError:
        return _NO_FIT
    time_s = row["time_us"] / 1e6
    fewer = _WINOGRAD if (row["r"], row["s"]) == (3, 3) else 1.0
    if time_s * _TOLERANCE < operation.flops / fewer / gpu.peak_flops[operation.precision]:
        return _IMPOSSIBLE
    return Measurement(
        operation,
        time_s,
        None,
        None,
        device_time_s=time_s,
        engine="MIOpen",
        kernel=row["solver"],
        campaign="miopen2024",
        method=_METHOD,
        line=row["line"],
    )


def _dataset(name: str, measurements: list[Measurement], total: int, left_out: Counter[str]) -> Dataset:
    card = Card(
        gpu=find_gpu(_GPUS[name]).name,
        clock_mhz=None,
        source=_SOURCE,
        licence="MIT",
        method={_METHOD: "time of the kernel by MIOpen's tuning; the quickest of its solvers"},
        without_host=(_METHOD,),
        sensor="none",
        software={"engines": "MIOpen", "driver": "unknown"},
        limits=(
            "no power",
            "the quickest of all solvers after tuning: PyTorch gets it where torch.backends.cudnn.benchmark is set",
            f"{len(measurements)} of {total} rows are here",
            *(f"{count} rows left out: {reason}" for reason, count in sorted(left_out.items())),
        ),
    )
    return Dataset(card, tuple(measurements))
