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

from ...errors import InputError
from ...hardware import find_gpu
from ...operations.operation import Operation
from .kernel_tables import KernelTable, Row

_GPUS = {"AMD Instinct MI210": "AMD Instinct MI210", "AMD Instinct MI250X GCD": "AMD Instinct MI250X"}
_DIRECTIONS = {"F": "forward", "B": "input_gradient", "W": "weight_gradient"}
_MOVES = ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
_SIZES = ("c", "h", "w", "r", "s", "k", "out_h", "out_w", "n", "groups", *_MOVES)
_WINOGRAD = 2.25
_TOLERANCE = 1.03
_IMPOSSIBLE = "times that the data sheet does not allow"


def _operation(row: Row) -> Operation | str:
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
    fewer = _WINOGRAD if (row["r"], row["s"]) == (3, 3) else 1.0
    least_s = operation.flops / fewer / find_gpu(_GPUS[row["gpu"]]).peak_flops[operation.precision]
    return _IMPOSSIBLE if row["time_us"] / 1e6 * _TOLERANCE < least_s else operation


import_miopen2024 = KernelTable(
    campaign="miopen2024",
    columns=("precision", "direction", "solver", *_SIZES),
    gpus=_GPUS,
    known={"precision": ("fp32", "fp16", "bf16"), "direction": _DIRECTIONS},
    even=("gpu", "precision", "direction"),
    operation=_operation,
    kernel=lambda row: str(row["solver"]),
    engine="MIOpen",
    limits=lambda gpu: (
        "the quickest of all solvers after tuning: PyTorch gets it where torch.backends.cudnn.benchmark is set",
    ),
    skip={"times of 0, too short for the clock": lambda columns: ~(columns["time_us"] > 0)},
).read
