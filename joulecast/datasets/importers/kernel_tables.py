"""Tables of kernel times in one Parquet file: a row for each kernel, without power and at the default clock."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import DatasetError, InputError
from ...operations.operation import Operation
from ...progress import tracked
from ...system.damage import refusing_damage
from ..measurement import Dataset, Measurement
from .reading import Columns, card_of, published, read_columns, refuse_unknown, rows_of, sampled

Row = Mapping[str, Any]

_ROWS = 60_000


@dataclass(frozen=True)
class KernelTable:
    """A table of kernel times, which include no launches, and how its rows become measurements.

    Args:
        campaign: Name of the source in published.toml, which has the name of the file and what cards say of it.
        columns: Columns of the file besides gpu and time_us.
        gpus: Name of a GPU in the file -> name in the catalogue.
        known: Other column -> values that it may have.
        even: Columns from whose values rows are sampled evenly.
        operation: Function from a row to its operation; or to the reason why the row is left out, which the card states
            unless it is empty.
        kernel: Function from a row to the name of its kernel.
        limits: Function from the name of a GPU in the file to the flaws of the data, before the number of rows.
        skip: Reason -> function from the columns to the rows that are left out for it before sampling.
        rest: What follows the number of rows in the card.
        engine: Program that called the kernels; empty for PyTorch alone.
    """

    campaign: str
    columns: tuple[str, ...]
    gpus: Mapping[str, str]
    even: tuple[str, ...]
    operation: Callable[[Row], Operation | str]
    kernel: Callable[[Row], str]
    limits: Callable[[str], tuple[str, ...]]
    known: Mapping[str, Collection[str]] = field(default_factory=dict)
    skip: Mapping[str, Callable[[Columns], npt.NDArray[np.bool_]]] = field(default_factory=dict)
    rest: str = ""
    engine: str = ""

    @property
    def method(self) -> str:
        """Name of the method by which all rows were measured."""
        return str(next(iter(published(self.campaign)["card"]["method"])))

    def read(self, folder: str | Path, *, rows: int | None = _ROWS) -> list[Dataset]:
        """One Dataset per GPU, of at most so many rows; None for all.

        Raises DatasetError: the file is missing or damaged, or has rows with words that are not known.
        """
        with refusing_damage("these files are damaged, or are not those of the source", Path(folder), DatasetError):
            return self._read(Path(folder) / published(self.campaign)["tables"][0], rows)

    def _read(self, path: Path, rows: int | None) -> list[Dataset]:
        columns = read_columns(path, ("gpu", *self.columns, "time_us"))
        *others, last = ("GPU", *self.known)
        left_out: dict[str, Counter[str]] = defaultdict(Counter)
        usable = np.ones(len(columns["gpu"]), dtype=bool)
        for reason, rows_to_skip in self.skip.items():
            mine = usable & rows_to_skip(columns)
            usable &= ~mine
            for gpu, count in Counter(columns["gpu"][mine]).items():
                left_out[gpu][reason] += count
        what = f"{', '.join(others)} or {last}" if others else last
        refuse_unknown(columns, path, what, usable, gpu=self.gpus, **self.known)
        taken = sampled(columns, usable, self.even, rows)
        found: dict[str, list[Measurement]] = defaultdict(list)
        for row in tracked(rows_of(columns, taken), "kernels", len(taken)):
            try:
                operation = self.operation(row)
            except InputError:
                operation = "sizes that do not fit each other"
            if isinstance(operation, Operation):
                found[row["gpu"]].append(self._measurement(operation, row))
            elif operation:
                left_out[row["gpu"]][operation] += 1
        totals = Counter(columns["gpu"])
        return [self._dataset(gpu, found[gpu], totals[gpu], left_out[gpu]) for gpu in sorted(found)]

    def _measurement(self, operation: Operation, row: Row) -> Measurement:
        time_s = row["time_us"] / 1e6
        return Measurement(
            operation,
            time_s,
            None,
            None,
            device_time_s=time_s,
            engine=self.engine,
            kernel=self.kernel(row),
            campaign=self.campaign,
            method=self.method,
            line=row["line"],
        )

    def _dataset(self, gpu: str, measurements: list[Measurement], total: int, left_out: Counter[str]) -> Dataset:
        card = card_of(
            self.campaign,
            self.gpus[gpu],
            without_host=(self.method,),
            sensor="none",
            limits=(
                "no power",
                *self.limits(gpu),
                f"{len(measurements)} of {total} rows are here{self.rest}",
                *(f"{count} rows left out: {reason}" for reason, count in sorted(left_out.items())),
            ),
        )
        return Dataset(card, tuple(measurements))
