"""Importer for the measurements of github.com/ai-dynamo/aiconfigurator: half precision and below, from A100 to GB200.

Reads `linear.parquet`, `attention.parquet`, `experts.parquet` and `collectives.parquet`, and gives one Dataset per GPU.
Times are of replayed CUDA graphs, so they include no launches. SGLang's bf16 products call
`torch.nn.functional.linear`, and its collectives call NCCL as PyTorch does. All others are kernels of the engines,
which the attribute `implementation` names.

Implausible rows are left out; `aiconfigurator_tables.py` has the rules and their reasons. The rest is sampled, and the
card states how many rows were left out and why.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import InputError
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...progress import tracked
from ..measurement import Dataset, Measurement
from . import aiconfigurator_tables
from .aiconfigurator_tables import PRECISIONS, TABLES, SourceTable, known_stacks
from .reading import Columns, card_of, groups, importer, read_columns, refuse_unknown, sampled

ROWS = 60_000
"""Rows that are read from each table by default. All of them would take minutes to build, and hours to fit."""

_METHOD = "graph_replay"
_SPIKE = "times that all four neighbours in size contradict by more than half"
_HOST = "times that wait for the host, since the engine did not replay a graph"
_IMPOSSIBLE = "times that the data sheet does not allow"
_MISREAD = "the large rows of this stack beat the data sheet: their sizes are not what they say"
# With caches of 256 tokens or more, a decoding step in TensorRT-LLM 1.0.0, 1.3.0rc15 and rc17 takes 0.58 of the time
# that reading its cache from memory needs; in 1.3.0rc20 and the other engines it does not.
_SHORT = f"power of calls below {aiconfigurator_tables.LEAST_POWER_US:g} us, which is that of their surroundings"
_WEAK = f"power below {aiconfigurator_tables.WEAK_POWER:g} of what neighbours in size draw"
_STALE = "power of TensorRT-LLM on the B200, which stays at 700 W where that of vLLM sits at the cap of 1000 W"
# Over 41 bf16 products between 1e12 and 1e13 FLOPs, the median power in vLLM is 1.36 times that in TensorRT-LLM.
_STALE_STACKS = {("NVIDIA B200", "trtllm 1.3.0rc15")}


@dataclass
class _Found:
    """The measurements of a GPU, and for each table the number of rows that were left out or are of limited use."""

    measurements: list[Measurement] = field(default_factory=list)
    rows: Counter[str] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    unusable: Counter[str] = field(default_factory=Counter)
    without_power: Counter[tuple[str, str]] = field(default_factory=Counter)
    stacks: set[str] = field(default_factory=set)
    power_limits_w: set[float] = field(default_factory=set)


@importer
def import_aiconfigurator2026(folder: str | Path, *, rows: int | None = ROWS) -> list[Dataset]:
    """Read the source as one Dataset per GPU, at its highest clock; single tables may be missing, but not all.

    Of each table at most so many rows are sampled evenly from GPUs, engines and precisions; None for all. Raises
    DatasetError: a file is damaged, there is none, or rows are of unknown GPUs, engines or precisions.
    """
    folder = Path(folder)
    present = [name for name in TABLES if (folder / f"{name}.parquet").is_file()] or list(TABLES)[:1]
    found: dict[str, _Found] = defaultdict(_Found)
    for name in tracked(present, "tables"):
        _read(name, TABLES[name], folder / f"{name}.parquet", rows, found)
    return [_dataset(gpu, mine) for gpu, mine in sorted(found.items())]


def _read(name: str, table: SourceTable, path: Path, rows: int | None, found: dict[str, _Found]) -> None:
    columns = read_columns(path, table.columns)
    known = {
        "gpu": filter(_known_gpu, set(columns["gpu"])),
        "stack": known_stacks(set(columns["stack"])),
        "precision": PRECISIONS,
    }
    refuse_unknown(columns, path, "GPU, engine or precision", **known)
    gpus = columns["gpu"]
    for gpu in sorted(set(gpus)):
        found[gpu].rows[name] += int((gpus == gpu).sum())
    same = [columns[c] for c in (*table.named, *table.sizes) if c not in table.along]
    group, along = groups(same), np.sum([columns[c] for c in table.along], axis=0)
    stratum = groups([columns[c] for c in table.named if c != "kernel"])
    disturbed = aiconfigurator_tables.spikes(columns["time_us"], group, along)
    for gpu, count in Counter(gpus[disturbed]).items():
        found[gpu].left_out[name, _SPIKE] += count
    skipped = np.zeros(len(gpus), dtype=bool)
    for reason, rows_of in table.skip.items():
        mine = rows_of(columns) & ~skipped & ~disturbed
        skipped |= mine
        for gpu, count in Counter(gpus[mine]).items():
            found[gpu].left_out[name, reason] += count
    taken = sampled({"stratum": stratum}, ~disturbed & ~skipped, ["stratum"], rows)
    power = _power_flaws(table, columns, group, along)
    _measure(name, table, {c: columns[c][taken] for c in columns}, taken, stratum[taken], power[taken], found)


def _known_gpu(name: str) -> bool:
    try:
        return find_gpu(name).name == name
    except InputError:
        return False


def _power_flaws(table: SourceTable, columns: Columns, group: Any, along: Any) -> npt.NDArray[Any]:
    """Why the power of each row is implausible; empty where it is plausible or was not measured."""
    flaws = np.full(len(group), "", dtype=object)
    if not table.has_power:
        return flaws
    power_w, measured = columns["power_w"], ~np.isnan(columns["power_w"])
    short = measured & (columns["time_us"] < aiconfigurator_tables.LEAST_POWER_US)
    flaws[short] = _SHORT
    whole = np.flatnonzero(measured & ~short)
    weak = aiconfigurator_tables.weak_power(power_w[whole], group[whole], along[whole])
    flaws[whole[weak]] = _WEAK
    for gpu, stack in _STALE_STACKS:
        flaws[measured & (columns["gpu"] == gpu) & (columns["stack"] == stack)] = _STALE
    return flaws


def _measure(
    name: str,
    table: SourceTable,
    columns: Columns,
    lines: npt.NDArray[np.int64],
    stratum: npt.NDArray[np.int64],
    flaws: npt.NDArray[Any],
    found: dict[str, _Found],
) -> None:
    operations = list(_operations(table, columns))
    gpus = [find_gpu(gpu) for gpu in columns["gpu"]]
    least_s = np.array(
        [aiconfigurator_tables.least_time_s(o, g) for o, g in zip(operations, gpus, strict=True)], dtype=float
    )
    time_s = columns["time_us"].astype(float) / 1e6
    beyond_cache = [o.bytes_read + o.bytes_written > 2 * g.l2_bytes for o, g in zip(operations, gpus, strict=True)]
    too_quick, large = time_s < least_s, np.array(beyond_cache, dtype=bool)
    misread = aiconfigurator_tables.misread(too_quick, large, stratum)
    waiting = aiconfigurator_tables.host_bound(time_s, least_s, stratum, table.graph_s)
    powered = np.isin(stratum, np.unique(stratum[~np.isnan(_power(table, columns))]))
    for place, operation in enumerate(operations):
        mine = found[columns["gpu"][place]]
        if waiting[place] or (too_quick[place] and not misread[place]):
            mine.left_out[name, _HOST if waiting[place] else _IMPOSSIBLE] += 1
            continue
        power_w = float(_power(table, columns)[place])
        known = not np.isnan(power_w)
        if misread[place]:
            mine.unusable[name] += 1
        elif flaws[place]:
            mine.without_power[name, flaws[place]] += 1
        if known:
            mine.power_limits_w.add(float(columns["power_limit_w"][place]))
        mine.stacks.add(columns["stack"][place])
        mine.measurements.append(
            Measurement(
                operation,
                float(time_s[place]),
                power_w if known else None,
                power_w * float(time_s[place]) if known else None,
                device_time_s=float(time_s[place]),
                engine=columns["stack"][place],
                kernel=columns["kernel"][place],
                sustained=bool(powered[place]),
                campaign=f"aiconfigurator2026/{name}",
                method=_METHOD,
                line=int(lines[place]) + 1,
                usable=not misread[place],
                power_usable=not flaws[place],
                remark=_MISREAD if misread[place] else flaws[place],
            )
        )


def _power(table: SourceTable, columns: Columns) -> npt.NDArray[Any]:
    return columns["power_w"] if table.has_power else np.full(len(columns["time_us"]), np.nan)


def _operations(table: SourceTable, columns: Columns) -> Iterator[Operation]:
    names = (*table.named, *table.sizes)
    known: dict[tuple[Any, ...], Operation] = {}
    for values in zip(*(columns[name].tolist() for name in names), strict=True):
        if values not in known:
            known[values] = table.operation(dict(zip(names, values, strict=True)))
        yield known[values]


def _dataset(gpu: str, found: _Found) -> Dataset:
    counts = Counter(m.campaign.split("/")[1] for m in found.measurements)
    limits = [
        "the clock was not recorded; the instructions ask for the highest",
        *(f"{name}: {counts[name]} of {total} rows are here" for name, total in found.rows.items()),
        *(f"{name}: {count} rows left out: {reason}" for (name, reason), count in sorted(found.left_out.items())),
        *(f"{name}: {count} rows without {reason}" for (name, reason), count in sorted(found.without_power.items())),
        *(f"{name}: {count} rows are marked unusable: {_MISREAD}" for name, count in sorted(found.unusable.items())),
        "vLLM leaves bf16 weights uninitialized, maybe zero: its power may be too low where the cap does not hold it, "
        "and its best rates too high",
    ]
    card = card_of(
        "aiconfigurator2026",
        gpu,
        sensor="NVML, board power every 100 ms, mean of the run" if found.power_limits_w else "none",
        software={"engines": ", ".join(sorted(found.stacks)), "driver": "unknown"},
        power_limit_w=min(found.power_limits_w, default=None),
        limits=tuple(limits),
    )
    return Dataset(card, tuple(found.measurements))
