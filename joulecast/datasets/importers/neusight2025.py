"""Importer for the measurements of github.com/sitar-lab/NeuSight (Lee et al., ASPLOS 2025).

Reads `operations.parquet` and, for plausibility, `device_specs.json`. Things to know, found in the data:

- Sizes. A product is [B, M, N] x [B, N, K] (in linear the weight is [K, N]): of 119,847 launches every tile of a
  known size covers M x K in all linear and 99.86 % of the bmm rows; M x N would in 1 % and 24 %.
- Time is measured between two CUDA events around one call on an idle GPU, so it includes the launch: 24 to 108 us,
    however little the GPU has to do. `Launches` subtracts it. Where the kernel is hidden behind the launch, there is no
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
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError, InputError, UnknownNameError
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...system.damage import refusing_damage
from ...system.regular_files import MOST_BYTES, read_json
from ..measurement import Card, Dataset, Measurement, refuse_lines
from .reading import card_of, importer, read_columns

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

Sizes = tuple[int, ...]


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
    """All rows of one operation of the source on one GPU."""

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
    columns, software = _columns(folder / "operations.parquet")
    rows = _rows_by_gpu(columns, _specs(folder / "device_specs.json"), str(folder))
    after = {gpu: value for gpu, by_name in rows.items() if (value := _after_s(by_name)) is not None}
    usual_s = median(after.values()) if after else 0.0
    datasets = []
    for gpu, by_name in rows.items():
        floors = {name: floor_s(mine.time_s, mine.least_s) for name, mine in by_name.items()}
        datasets.append(_dataset(gpu, by_name, Launches(floors, after.get(gpu, usual_s)), software))
    return datasets + _amd_datasets(folder / "amd_operations.parquet")


def _amd_datasets(path: Path) -> list[Dataset]:
    if not path.is_file():
        return []
    columns = read_columns(path, ("operation", "gpu", "latency_ms", "B", "H"))
    specs = {}
    for name in sorted(set(columns["gpu"])):
        with suppress(UnknownNameError):  # The rows of such a GPU are reported as unknown below.
            gpu = find_gpu(name)
            specs[name] = ((gpu.vector_flops or gpu.peak_flops)["fp32"], gpu.memory_bandwidth)
    sizes = {name: columns[name].astype(np.int64) for name in ("B", "H")}
    datasets = []
    for name, by_name in _rows_by_gpu({**columns, **sizes}, specs, str(path)).items():
        # All of these calls are long, so that the line through element-wise operations gives the launch at zero bytes.
        beside = {n: beside_s(mine.time_s, mine.least_s) for n, mine in by_name.items() if _SOURCES[n].elementwise}
        usual_s = median(beside.values()) if beside else 0.0
        launches = Launches({n: beside.get(n, usual_s) for n in by_name}, 0.0)
        datasets.append(_dataset(name, by_name, launches, {"torch": "2.4.1"}, limits=_AMD_LIMITS))
    return datasets


def _rows_by_gpu(
    columns: Mapping[str, Any], specs: Mapping[str, tuple[float, float]], where: str
) -> dict[str, dict[str, _Rows]]:
    names, gpus = columns["operation"].astype(str), columns["gpu"].astype(str)
    unknown = np.flatnonzero(~np.isin(names, list(_SOURCES)) | ~np.isin(gpus, list(specs)))
    if len(unknown):
        faults = [f"row {row + 1}: unknown operation or GPU ({names[row]}, {gpus[row]})" for row in unknown]
        refuse_lines(faults, where)
    known: dict[tuple[str, Sizes], Operation] = {}
    rows: dict[str, dict[str, _Rows]] = defaultdict(dict)
    for gpu in sorted(specs):
        for name in _SOURCES:
            found = np.flatnonzero((names == name) & (gpus == gpu))
            if len(found):
                rows[gpu][name] = _rows(name, found, columns, specs[gpu], known)
    return rows


def _columns(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    sizes = dict.fromkeys(column for source in _SOURCES.values() for column in source.columns)
    columns = read_columns(path, ("operation", "gpu", "latency_ms", *_SOFTWARE, *sizes))
    software = {name: ", ".join(sorted(set(columns.pop(name)))) for name in _SOFTWARE}
    # Sizes that an operation does not have are empty.
    return {**columns, **{name: np.nan_to_num(columns[name]).astype(np.int64) for name in sizes}}, software


def _specs(path: Path) -> dict[str, tuple[float, float]]:
    specs = read_json(path, MOST_BYTES, "this file of data sheets", DatasetError)
    with refusing_damage("this file of data sheets cannot be read", path, DatasetError):
        return {gpu: (row["SingleFLOPs"] * 1e9, row["Mem_Bw"] * 1e9) for gpu, row in specs.items()}


def _rows(
    name: str,
    found: Any,
    columns: Mapping[str, Any],
    spec: tuple[float, float],
    known: dict[tuple[str, Sizes], Operation],
) -> _Rows:
    source = _SOURCES[name]
    lines, operations, faults = [int(row) + 1 for row in found], [], []
    for line, sizes in zip(lines, zip(*(columns[c][found].tolist() for c in source.columns), strict=True), strict=True):
        key = (name, sizes)
        if key not in known:
            try:
                known[key] = source.build(*sizes)
            except InputError as error:
                faults.append(f"row {line}: {error.what} ({name}, {sizes})")
                continue
        operations.append(known[key])
    if faults:
        refuse_lines(faults, name)
    peak, bandwidth = spec
    flops = np.array([operation.flops for operation in operations], dtype=float)
    size_bytes = np.array([operation.bytes_read + operation.bytes_written for operation in operations], dtype=float)
    # Data sheets do not state the rate of the units that compute activations; these operations are bound by memory.
    arithmetic_s = flops / peak if name in ("bmm", "linear", "conv") else np.zeros(len(flops))
    return _Rows(
        lines, operations, columns["latency_ms"][found] / 1e3, np.maximum(arithmetic_s, size_bytes / bandwidth)
    )


def _after_s(by_name: Mapping[str, _Rows]) -> float | None:
    values = [after_s(rows.time_s, rows.least_s) for name, rows in by_name.items() if _SOURCES[name].elementwise]
    return median(known) if (known := [value for value in values if value is not None]) else None


def _dataset(
    gpu: str, by_name: Mapping[str, _Rows], launches: Launches, software: Mapping[str, str], **more: Any
) -> Dataset:
    products = {name: (by_name[name].time_s, by_name[name].least_s) for name in _PRODUCTS if name in by_name}
    throttled = throttled_kinds(products)
    measurements = []
    for name, rows in by_name.items():
        too_slow = (rows.least_s > LONG_S) & (name in throttled)
        least = rows.least_s / (_WINOGRAD if name == "conv" else 1.0) / _TOLERANCE
        for line, operation, time_s, least_s, is_throttled in zip(
            rows.lines, rows.operations, rows.time_s.tolist(), least.tolist(), too_slow.tolist(), strict=True
        ):
            device_time_s = launches.device_time_s(name, time_s)
            fault = _IMPOSSIBLE if time_s < least_s else _THROTTLED if is_throttled else ""
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
    return Dataset(_card(gpu, launches, software, **more), tuple(measurements))


def _card(gpu: str, launches: Launches, software: Mapping[str, str], **more: Any) -> Card:
    floors = ", ".join(f"{name} {1e6 * launches.launch_s(name):.1f}" for name in launches.floor_s)
    return card_of(
        "neusight2025",
        gpu,
        method={
            _METHOD: "mean of the 5 fastest of 25 calls, each between two CUDA events on an idle GPU; the launch is "
            f"in it: {1e6 * launches.after_s:.1f} us behind it, and before the kernel, in us: {floors}"
        },
        software={**software, "driver": "unknown"},
        **more,
    )


Values = npt.NDArray[np.float64]

_SMALL_S = 3e-6  # Calls that would take less than this at the data sheet's rates are bound by the host.
_LEAST = 50
_FLOOR_QUANTILE = 0.1
# Within one kind the host's speed changes during a campaign by up to 1.28 (T4); calls up to here may be bound by it.
HIDDEN_BELOW = 1.35
_LINE = (
    1.5,
    10.0,
)  # As multiples of the floor: long enough for the kernel to be visible, short enough for the intercept to matter.


@dataclass(frozen=True)
class Launches:
    """Times that the host of one GPU adds to kernels, by kind of call: the least seconds between two events.

    The GPU passes the first event at once and then waits for the launch. The host issues the second event some time
    after the launch. So

        time = launch + max(kernels, after)

    and a kernel that is shorter than `after` cannot be seen: all such calls of a kind take the same time, their floor
    (24 to 108 us in neusight2025, where the kernels themselves take 1 to 20 us). Element-wise kernels reveal both
    unknowns, because their time is proportional to the bytes. A line through the longer ones has its value at zero
    bytes at `launch` (residuals are 0.1 to 1 %), and the floor minus `launch` is `after`, which hardly differs between
    kinds.

    A board that is too hot, or held by its power cap, lowers its clock. A table of times does not state that but shows
    it: long products fill the GPU, so linear layers and batched products should reach about the same share of the peak.
    In neusight2025, linear layers of more than half a millisecond at the peak reach 0.9 to 1.3 of the rate of batched
    products of that length on A100, V100, P100 and T4, but 0.5 on the P4, where short linear layers are not slower.

    `after_s` are the seconds from the launch to the second event.
    """

    floor_s: Mapping[Any, float]
    after_s: float

    def launch_s(self, kind: Any) -> float:
        """Seconds before the kernel of a kind of call starts."""
        return self.floor_s[kind] - self.after_s

    def device_time_s(self, kind: Any, time_s: float) -> float | None:
        """Seconds that the GPU worked in a call; None where the second event came later than the kernel's end."""
        return time_s - self.launch_s(kind) if time_s > HIDDEN_BELOW * self.floor_s[kind] else None


def floor_s(time_s: Values, least_s: Values) -> float:
    """The floor of one kind of call, from measured times and the times at the data sheet's rates."""
    small = time_s[least_s < _SMALL_S]
    return float(np.quantile(small, _FLOOR_QUANTILE) if len(small) >= _LEAST else time_s.min())


def after_s(time_s: Values, least_s: Values) -> float | None:
    """Seconds between launch and second event, from element-wise calls of one kind; None where there are too few."""
    floor = floor_s(time_s, least_s)
    line = (time_s > _LINE[0] * floor) & (time_s < _LINE[1] * floor)
    if line.sum() < _LEAST:
        return None
    return floor - beside_s(time_s[line], least_s[line])


def beside_s(time_s: Values, least_s: Values) -> float:
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

    For each kind these are the measured seconds, and the least seconds that the data sheet allows, of each row.
    """
    reached = {}
    for kind, (time_s, least_s) in times.items():
        long = least_s > LONG_S
        if long.sum() >= _LEAST_ROWS:
            reached[kind] = float(np.median(least_s[long] / time_s[long]))
    return frozenset(kind for kind, share in reached.items() if share < _THROTTLED_SHARE * max(reached.values()))
