"""Rows of convolutions.parquet from a clone of github.com/ROCm/MIOpen.

The repository has a table of tuned solvers for each GPU, src/kernels/ARCHITECTURE+UNITS.HIP.fdb.txt, also compressed
with bzip2. A line is a convolution, an equals sign, and its solvers, the quickest of which is taken:

    1-160-698-5x5-64-79-348-1-1x1-2x2-1x1-0-NCHW-FP32-F=ConvSolver:0.02352,0,miopenConvolutionFwdAlgo...;...
    c-h-w-rxs-k-out_h-out_w-n-padding-stride-dilation-bias-layout-precision-direction[_gGROUPS]=SOLVER:MILLISECONDS,...

Older files write ALGORITHM:SOLVER,MILLISECONDS,... instead.
"""

from __future__ import annotations

import bz2
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from joulecast.errors import DatasetError
from joulecast.system.regular_files import read_regular, unreadable

# Units in hexadecimal: 0x68 are the 104 of an MI210, 0x6e the 110 of one die of an MI250X.
_GPUS = {"gfx90a68": "AMD Instinct MI210", "gfx90a6e": "AMD Instinct MI250X GCD"}
_PRECISIONS = {"FP32": "fp32", "FP16": "fp16", "BF16": "bf16"}
_SIZES = ("c", "h", "w", "r", "s", "k", "out_h", "out_w", "n")
_PAIRS = ("pad_h", "pad_w", "stride_h", "stride_w", "dilation_h", "dilation_w")
_LINE = re.compile(
    r"(\d+)-(\d+)-(\d+)-(\d+)x(\d+)-(\d+)-(\d+)-(\d+)-(\d+)-(\d+)x(\d+)-(\d+)x(\d+)-(\d+)x(\d+)-(\d+)"
    r"-(\w+)-(FP32|FP16|BF16)-([FBW])(?:_g(\d+))?=(.+)"
)
_SOLVER = re.compile(r"(?P<first>\w+):(?:(?P<second>\w+),)?(?P<ms>[0-9.eE+-]+),")
_MOST_BYTES = 256 << 20


def convolutions(clone: Path) -> Iterator[Mapping[str, Any]]:
    """The rows of convolutions.parquet: the quickest solver of each convolution in two dimensions.

    Convolutions in three dimensions, and types that are not imported, have lines of another form and are left out.
    """
    for name, gpu in _GPUS.items():
        for path in sorted((clone / "src" / "kernels").glob(f"{name}.HIP.fdb.txt*")):
            for line in _text(path).splitlines():
                found, solvers = _LINE.fullmatch(line), []
                if found is not None:
                    solvers = [each for each in map(_solver, found[21].split(";")) if each is not None]
                if found is None or not solvers:
                    continue
                numbers = list(map(int, found.groups()[:16]))
                milliseconds, solver = min(solvers)
                yield {
                    "gpu": gpu,
                    "layout": found[17],
                    "precision": _PRECISIONS[found[18]],
                    "direction": found[19],
                    **dict(zip((*_SIZES, *_PAIRS, "bias"), numbers, strict=True)),
                    "groups": int(found[20] or 1),
                    "time_us": float(np.float32(1e3 * milliseconds)),
                    "solver": solver,
                    "solvers": len(solvers),
                }


def _text(path: Path) -> str:
    data = read_regular(path, _MOST_BYTES, "this table of MIOpen", DatasetError)
    try:
        if path.suffix == ".bz2":
            unpacker = bz2.BZ2Decompressor()
            data = unpacker.decompress(data, _MOST_BYTES)
            if not unpacker.eof:
                raise ValueError(f"it unpacks to more than {_MOST_BYTES:,} bytes, or ends too early")
        return data.decode("ascii")
    except (OSError, ValueError) as error:
        raise unreadable("this table of MIOpen cannot be read", path, error, DatasetError) from error


def _solver(text: str) -> tuple[float, str] | None:
    """Milliseconds and name of a solver; None for what is not one."""
    found = _SOLVER.match(text)
    if found is None:
        return None
    try:
        return float(found["ms"]), found["second"] or found["first"]
    except ValueError:
        return None
