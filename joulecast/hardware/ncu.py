"""Counters of memory levels from `ncu --csv`, NVIDIA's profiler of kernels (Nsight Compute).

    ncu --csv --print-units base --metrics NAMES python train.py > counters.csv

`metrics()` returns the names. The table below says which counters are added up for each level. The names are those that
Nsight Compute has for GPUs since Volta (compute capability 7.0). They have not been tested on a GPU.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..errors import InputError
from ..system.regular_files import lines, refusing_damage

SECTOR, WAVEFRONT = 32, 128
"""Bytes of a sector (of caches and DRAM), and bytes that all banks of shared memory deliver in one cycle."""

COUNTERS: Mapping[str, tuple[Mapping[str, float], ...]] = {
    # Level -> alternative sets of metrics, the most precise first: metric -> bytes per count.
    "shared": (
        {"smsp__sass_data_bytes_mem_shared.sum": 1},
        {"l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": WAVEFRONT},
    ),
    "l1": (
        {"l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum": SECTOR},
        {"l1tex__t_sectors_lookup_hit.sum": SECTOR},
    ),
    # Reads only, because written data is counted where it ends, in DRAM.
    "l2": ({"lts__t_sectors_op_read_lookup_hit.sum": SECTOR}, {"lts__t_sectors_lookup_hit.sum": SECTOR}),
    "dram": (
        {"dram__bytes_read.sum": 1, "dram__bytes_write.sum": 1},
        {"dram__sectors_read.sum": SECTOR, "dram__sectors_write.sum": SECTOR},
    ),
}
"""Memory level -> metrics of GPUs from Volta to Blackwell. The first set that a file contains completely is used."""

_UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "sector": 1.0, "": 1.0}
_COLUMNS = ("ID", "Kernel Name", "Metric Name", "Metric Unit", "Metric Value")
_MOST_BYTES = 256 << 20
_LONGEST_LINE = 16 << 20


def metrics() -> tuple[str, ...]:
    """Names of the metrics for the option --metrics of ncu."""
    return tuple(name for ways in COUNTERS.values() for name in ways[0])


Traffic = Mapping[str, float | None]
"""Memory level -> bytes that it served to all kernels together; None where a kernel has no counter of this level."""


def read_counters(path: str | Path) -> Traffic:
    """Read the output of `ncu --csv`, which may contain other lines of ncu and of the program.

    Raises InputError: the file cannot be read, or has no counters of memory levels; a counter has an unknown unit; or
    ncu was not permitted to read counters.
    """
    path = Path(path)
    read = lines(path, _MOST_BYTES, _LONGEST_LINE, "this file of counters")
    return counters_of((line.decode(errors="replace") for line in read), str(path))


def counters_of(lines_of_ncu: Iterable[str], where: str) -> Traffic:
    """Read the counters from lines of `ncu --csv`."""
    command = f"ncu --csv --print-units base --metrics {','.join(metrics())} PROGRAM > counters.csv"
    kernels: dict[str, dict[str, float]] = {}
    with refusing_damage("a line of this file of counters cannot be read", Path(where)):
        rows = csv.DictReader(_of_table(lines_of_ncu, where))
        if not set(_COLUMNS) <= set(rows.fieldnames or ()):
            raise InputError(
                "this is not what `ncu --csv` writes",
                given=where,
                allowed=f"a table with the columns {', '.join(_COLUMNS)}",
                hint=command,
            )
        for row in rows:
            if None in row or None in row.values():  # an incomplete line, or output of the program
                continue
            values = kernels.setdefault(row["ID"], {})
            if (value := _value(row, where)) is not None:
                values[row["Metric Name"]] = value
    served: dict[str, list[float | None]] = {level: [] for level in COUNTERS}
    for values in kernels.values():
        for level, ways in COUNTERS.items():
            way = next((way for way in ways if way.keys() <= values.keys()), None)
            served[level].append(None if way is None else math.fsum(values[name] * size for name, size in way.items()))
    if not any(each is not None for of_level in served.values() for each in of_level):
        raise InputError(
            "this file has no counters of memory levels",
            given=f"{where}: {len(kernels)} kernels",
            allowed=", ".join(metrics()),
            hint=command,
        )
    known = {level: [each for each in of_level if each is not None] for level, of_level in served.items()}
    return {level: math.fsum(values) if len(values) == len(kernels) else None for level, values in known.items()}


def _of_table(lines_of_ncu: Iterable[str], where: str) -> Iterator[str]:
    """The lines of the table from its head on. Raises InputError: ncu was not permitted to read counters."""
    begun = False
    for line in lines_of_ncu:
        if "ERR_NVGPUCTRPERM" in line:
            raise InputError(
                "ncu was not allowed to read the GPU's counters",
                given=f"{where}: ERR_NVGPUCTRPERM",
                hint="run ncu as root; or permit it to all users by `options nvidia "
                "NVreg_RestrictProfilingToAdminUsers=0` in a file in /etc/modprobe.d, and reload the driver",
            )
        if line.startswith('"' if begun else '"ID"'):
            begun = True
            yield line


def _value(row: Mapping[str, str], where: str) -> float | None:
    """A value in bytes or as a count; None if ncu has no value, or if the metric is not in COUNTERS."""
    if not any(row["Metric Name"] in way for ways in COUNTERS.values() for way in ways):
        return None
    if row["Metric Unit"] not in _UNITS:
        raise InputError(
            "the unit of a counter is not known",
            given=f"{where}: {row['Metric Name']} in {row['Metric Unit']!r}",
            allowed=", ".join(filter(None, _UNITS)),
            hint="run ncu with --print-units base",
        )
    try:
        value = float(row["Metric Value"].replace(",", "")) * _UNITS[row["Metric Unit"]]
    except ValueError:  # "n/a"
        return None
    return value if math.isfinite(value) and value >= 0 else None
