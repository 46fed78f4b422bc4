"""Importer for the measurements of github.com/sitar-lab/NeuSight (Lee et al., ASPLOS 2025).

Reads `operations.parquet` and, for plausibility, `device_specs.json`. Things to know, found in the data:

- Sizes. A product is [B, M, N] x [B, N, K] (in linear the weight is [K, N]): of 119,847 launches every tile of a
  known size covers M x K in all linear and 99.86 % of the bmm rows; M x N would in 1 % and 24 %.
- Time is measured between two CUDA events around one call on an idle GPU, so it includes the launch: 24 to 108 us,
    however little the GPU has to do. `_dataset` subtracts it. Where the kernel is hidden behind the launch, there is no
    device time.
- AMD. `amd_operations.parquet`, where it is there, has point-wise operations, softmax and layer norm of MI100 and
  MI210, timed in the same way; the catalogue has their data sheets.
- Throttling. Long linear layers on the P4 reach half the rate of its batched products, and a third of the rate that
    shorter ones suggest (`throttled_kinds`), because the board was throttled. They are marked unusable.
- Limits. No row beats the data sheet except convolutions of 3 x 3, which Winograd's F(2 x 2, 3 x 3) computes with 2.25
    times fewer multiplications (the fastest beat it by 2.24). Rows that are faster than this are marked unusable.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError, InputError, UnknownNameError
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...system.regular_files import MOST_BYTES, read_json
from ..measurement import Dataset, Measurement, refuse_lines
from .reading import Columns, card_of, importer, read_columns, refuse_unknown

_METHOD = "events"
_SOFTWARE = ("torch", "cudnn", "cuda")
_WINOGRAD = 2.25
_TOLERANCE = 1.05  # Boards boost to clocks a little above those of their data sheets.
_HIDDEN = "the kernel is hidden behind its launch: no device time"
_IMPOSSIBLE = "faster than the data sheet allows"
_THROTTLED = "far slower than other products of that length: the GPU was throttled"
_PRODUCTS = ("linear", "bmm")
_AMD_LIMITS = (
    "no power",
    "fp32; point-wise operations, softmax and layer norm only, of 4100 and more rows",
    "inputs of element-wise operations are zeros",
    "device times are estimates: the time less the launch",
)


class _Source(NamedTuple):
    """How the source describes a kind of operation: its columns of sizes, and how they make an Operation."""

    columns: tuple[str, ...]
    build: Callable[..., Operation]
    elementwise: bool = False


def _of_rows(kind: str, inputs: int = 1, *, elementwise: bool = True) -> _Source:
    return _Source(("B", "H"), lambda b, h: Operation(kind, [(b, h)] * inputs), elementwise)


def _conv(b: int, in_channels: int, out_channels: int, kernel: int, n: int, stride: int, padding: int) -> Operation:
    attributes = {"out_channels": out_channels, "kernel_size": kernel, "stride": stride, "padding": padding}
    return Operation("conv2d", [(b, in_channels, n, n)], {**attributes, "bias": False})


_GEMM = ("B", "M", "N", "K")
_CONV = ("B", "in_channels", "out_channels", "kernel_size", "input_size", "stride", "padding")
_SOURCES: Mapping[str, _Source] = {
    "bmm": _Source(_GEMM, lambda b, m, n, k: Operation("matmul", [(b, m, n), (b, n, k)])),
    # torch.nn.Linear(n, k) with its bias.
    "linear": _Source(_GEMM, lambda b, m, n, k: Operation("linear", [(b, m, n)], {"out_features": k})),
    "conv": _Source(_CONV, _conv),
    "ln": _of_rows("layer_norm", elementwise=False),
    "softmax": _of_rows("softmax", elementwise=False),
    **{kind: _of_rows(kind) for kind in ("relu", "gelu", "tanh")},
    **{kind: _of_rows(kind, 2) for kind in ("add", "mul", "div", "pow")},
    **{f"{kind}u": _of_rows(kind) for kind in ("add", "mul", "div", "pow")},
}


class _Rows(NamedTuple):
    """All rows of one operation of the source on one GPU; `least_s` are the seconds at the data sheet's rates."""

    lines: list[int]
    operations: list[Operation]
    time_s: Values
    least_s: Values


@importer
def import_neusight2025(folder: str | Path) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its default clock.

    Raises DatasetError, which names the rows: a file is missing or damaged, or rows are impossible or of unknown
    operations.
    """
    folder = Path(folder)
    sizes = dict.fromkeys(column for source in _SOURCES.values() for column in source.columns)
    columns = read_columns(folder / "operations.parquet", ("operation", "gpu", "latency_ms", *_SOFTWARE, *sizes))
    software = {name: ", ".join(sorted(set(columns.pop(name)))) for name in _SOFTWARE}
    sheets = read_json(folder / "device_specs.json", MOST_BYTES, "this file of data sheets", DatasetError)
    specs = {gpu: (row["SingleFLOPs"] * 1e9, row["Mem_Bw"] * 1e9) for gpu, row in sheets.items()}
    rows = _rows_by_gpu(columns, specs, folder)
    floors = {gpu: {name: _floor_s(mine) for name, mine in by_name.items()} for gpu, by_name in rows.items()}
    after = {gpu: _after_s(by_name, floors[gpu]) for gpu, by_name in rows.items()}
    usual_s = median(known) if (known := [value for value in after.values() if value is not None]) else 0.0
    return [
        _dataset(gpu, by_name, floors[gpu], usual_s if (own := after[gpu]) is None else own, software)
        for gpu, by_name in rows.items()
    ] + _amd_datasets(folder / "amd_operations.parquet")


def _amd_datasets(path: Path) -> list[Dataset]:
    if not path.is_file():
        return []
    columns = read_columns(path, ("operation", "gpu", "latency_ms", "B", "H"))
    specs = {}
    for name in sorted(set(columns["gpu"])):
        with suppress(UnknownNameError):  # The rows of such a GPU are reported as unknown below.
            gpu = find_gpu(name)
            specs[name] = ((gpu.vector_flops or gpu.peak_flops)["fp32"], gpu.memory_bandwidth)
    datasets = []
    for name, by_name in _rows_by_gpu(columns, specs, path).items():
        # All of these calls are long, so that the line through element-wise operations gives the launch at zero bytes.
        beside = {n: _beside_s(mine.time_s, mine.least_s) for n, mine in by_name.items() if _SOURCES[n].elementwise}
        usual_s = median(beside.values()) if beside else 0.0
        floors = {n: beside.get(n, usual_s) for n in by_name}
        datasets.append(_dataset(name, by_name, floors, 0.0, {"torch": "2.4.1"}, limits=_AMD_LIMITS))
    return datasets


def _rows_by_gpu(
    columns: Columns, specs: Mapping[str, tuple[float, float]], where: Path
) -> dict[str, dict[str, _Rows]]:
    """GPU -> operation of the source -> its rows; `specs` are FLOP/s and bytes per second of the data sheets."""
    refuse_unknown(columns, where, "operation or GPU", operation=_SOURCES, gpu=specs)
    rows: dict[str, dict[str, _Rows]] = defaultdict(dict)
    build = cache(lambda name, *sizes: _SOURCES[name].build(*sizes))
    for gpu, (peak, bandwidth) in sorted(specs.items()):
        for name, source in _SOURCES.items():
            mine = np.flatnonzero((columns["operation"] == name) & (columns["gpu"] == gpu))
            if not len(mine):
                continue
            # Sizes that an operation does not have are empty.
            sizes = np.transpose([np.nan_to_num(columns[c][mine]).astype(np.int64) for c in source.columns]).tolist()
            operations, faults = [], []
            for line, given in zip((mine + 1).tolist(), sizes, strict=True):
                try:
                    operations.append(build(name, *given))
                except InputError as error:
                    faults.append(f"row {line}: {error.what} ({name}, {tuple(given)})")
            refuse_lines(faults, name)
            # Data sheets do not state the rate of the units that compute activations; these are bound by memory.
            flops = [o.flops if name in (*_PRODUCTS, "conv") else 0 for o in operations]
            size_bytes = np.array([o.bytes_read + o.bytes_written for o in operations], dtype=float)
            least_s = np.maximum(np.array(flops, dtype=float) / peak, size_bytes / bandwidth)
            rows[gpu][name] = _Rows((mine + 1).tolist(), operations, columns["latency_ms"][mine] / 1e3, least_s)
    return rows


def _dataset(
    gpu: str,
    by_name: Mapping[str, _Rows],
    floor_s: Mapping[str, float],
    after_s: float,
    software: Mapping[str, str],
    **card: Any,
) -> Dataset:
    """The measurements of a GPU.

    The GPU passes the first event at once and then waits for the launch. The host issues the second event some time
    after the launch. So

        time = launch + max(kernels, after)

    and a kernel that is shorter than `after` cannot be seen: all such calls of a kind take the same time, their floor
    (24 to 108 us, where the kernels themselves take 1 to 20 us). Element-wise kernels reveal both unknowns, because
    their time is proportional to the bytes. A line through the longer ones has its value at zero bytes at `launch`
    (residuals are 0.1 to 1 %), and the floor minus `launch` is `after`, which hardly differs between kinds.
    """
    throttled = throttled_kinds({n: (by_name[n].time_s, by_name[n].least_s) for n in _PRODUCTS if n in by_name})
    measurements = []
    for name, rows in by_name.items():
        launch_s = floor_s[name] - after_s
        too_quick = rows.time_s < rows.least_s / (_WINOGRAD if name == "conv" else 1.0) / _TOLERANCE
        too_slow = (rows.least_s > LONG_S) & (name in throttled)
        faults = np.where(too_quick, _IMPOSSIBLE, np.where(too_slow, _THROTTLED, "")).tolist()
        for line, operation, time_s, fault in zip(
            rows.lines, rows.operations, rows.time_s.tolist(), faults, strict=True
        ):
            device_time_s = time_s - launch_s if time_s > _HIDDEN_BELOW * floor_s[name] else None
            measurements.append(
                Measurement(
                    operation,
                    time_s,
                    None,
                    None,
                    device_time_s=device_time_s,
                    campaign="neusight2025",
                    method=_METHOD,
                    line=line,
                    usable=not fault,
                    remark=fault or (_HIDDEN if device_time_s is None else ""),
                )
            )
    measurements.sort(key=lambda m: m.line or 0)
    launches = ", ".join(f"{name} {1e6 * (floor - after_s):.1f}" for name, floor in floor_s.items())
    method = (
        "mean of the 5 fastest of 25 calls, each between two CUDA events on an idle GPU; the launch is "
        f"in it: {1e6 * after_s:.1f} us behind it, and before the kernel, in us: {launches}"
    )
    software = {**software, "driver": "unknown"}
    return Dataset(card_of("neusight2025", gpu, method={_METHOD: method}, software=software, **card), (*measurements,))


Values = npt.NDArray[np.float64]

_SMALL_S = 3e-6  # Calls that would take less than this at the data sheet's rates are bound by the host.
_LEAST = 50
_FLOOR_QUANTILE = 0.1
# Within one kind the host's speed changes during a campaign by up to 1.28 (T4); calls up to here may be bound by it.
_HIDDEN_BELOW = 1.35
# As multiples of the floor: long enough for the kernel to be visible, short enough for the intercept to matter.
_LINE = (1.5, 10.0)


def _floor_s(rows: _Rows) -> float:
    """The least seconds between two events of one kind of call, however short its kernel."""
    small = rows.time_s[rows.least_s < _SMALL_S]
    return float(np.quantile(small, _FLOOR_QUANTILE) if len(small) >= _LEAST else rows.time_s.min())


def _after_s(by_name: Mapping[str, _Rows], floor_s: Mapping[str, float]) -> float | None:
    """Seconds from the launch to the second event, by element-wise calls; None where there are too few."""
    after = []
    for name, rows in by_name.items():
        line = (rows.time_s > _LINE[0] * floor_s[name]) & (rows.time_s < _LINE[1] * floor_s[name])
        if _SOURCES[name].elementwise and line.sum() >= _LEAST:
            after.append(floor_s[name] - _beside_s(rows.time_s[line], rows.least_s[line]))
    return median(after) if after else None


def _beside_s(time_s: Values, least_s: Values) -> float:
    """Seconds that element-wise calls take besides their kernels, for calls long enough to be bound by the GPU."""
    if len(time_s) < 2:
        return 0.0
    _, at_zero_s = np.polyfit(least_s, time_s, 1, w=1 / time_s)
    return max(0.0, float(at_zero_s))


LONG_S = 0.5e-3
"""Least time by the data sheet of products that fill a GPU and last long enough to be throttled."""

_LEAST_ROWS = 50
# Relative to the rate of the other kind. On four GPUs that were not throttled the lowest value is 0.93.
_THROTTLED_SHARE = 0.7


def throttled_kinds(times: Mapping[str, tuple[Values, Values]]) -> frozenset[str]:
    """The kinds of products that were measured on a GPU while it was throttled.

    A board that is too hot, or held by its power cap, lowers its clock. A table of times does not state that but shows
    it: long products fill the GPU, so linear layers and batched products should reach about the same share of the peak.
    In neusight2025, linear layers of more than half a millisecond at the peak reach 0.9 to 1.3 of the rate of batched
    products of that length on A100, V100, P100 and T4, but 0.5 on the P4, where short linear layers are not slower.

    For each kind these are the measured seconds, and the least seconds that the data sheet allows, of each row.
    """
    reached = {}
    for kind, (time_s, least_s) in times.items():
        long = least_s > LONG_S
        if long.sum() >= _LEAST_ROWS:
            reached[kind] = float(np.median(least_s[long] / time_s[long]))
    return frozenset(kind for kind, share in reached.items() if share < _THROTTLED_SHARE * max(reached.values()))
