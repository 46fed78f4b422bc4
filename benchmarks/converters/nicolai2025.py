"""Rows of operations.csv and networks.csv from a clone of github.com/ConstantinNicolai/ml-operator-profiling.

The repository keeps what its runs printed, in functional_general_benchmark/, and overwrites a log when a campaign is
repeated. So each campaign is a blob of the repository's history. A line of a log has a module or the class of a
network, the shape of its input, numbers, and when it started and stopped. The others are warnings, and names of
networks:

    resnet18 (32, 3, 299, 299)
    ResNet (32, 3, 299, 299) 0.012342 2027.84 0.6434 33.8223 1476 18.2167 164.3046 2.7402 ... 2024-11-18_13-33-53 ...

The numbers are seconds, millijoules, the deviations of both (that of the seconds is the first behind the moments, in
campaigns that have it), iterations, seconds of the loop, watts and their deviation. Where training was measured too,
its numbers follow: seconds, millijoules, seconds of the loop and watts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from joulecast.datasets.importers.nicolai2025 import NUMBERS
from joulecast.errors import DatasetError

_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "A30_no_tc_operations_bench_run": ("6e44a47d81",),
    "A30_operations_bench_run": ("832a0a0ced",),
    "RTX2080TI_operations_bench_run": ("30fb35ce55",),
    "finalbench_all_operations_A30": ("c39e7b4a1b",),
    "finalbench_all_operations_A30_no_tc": ("152dc0e0f5",),
    "finalbench_all_operations_RTX2080TI": ("4f9256b1f2",),
    "operations_A30": ("b9a41a8bc9",),
    "operations_A30_no_tc": ("ee5db19fc9", "a93811bf12"),
    "operations_A30_no_tc_train": ("65c41c1ce4", "12f6a79586"),
    "operations_A30_train": ("c63220e968", "4685fb9e76", "4a3aaf8a65"),
    "operations_RTX2080TI": ("453302f6a4",),
    "operations_RTX2080TI_train": ("f9496d512b", "6c2e9ac766", "7f63c5e6d3"),
    "operations_RTX2080TI_train_2_8": ("46dcad6712",),
}
_NETWORKS: Mapping[str, tuple[str, ...]] = {
    "A30_fullmodel_train": ("7d022379d2",),
    "A30_no_tc_fullmodel_train": ("7979c5bd87",),
    "fullmodel_A30": ("2fe4975b47",),
    "fullmodel_A30_no_tc": ("586a2f20a9",),
}
"""Log -> the first digits of its blobs, one for each campaign."""

_MOMENT = r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d"
_MEASURED = re.compile(
    rf"(?P<name>\S.*) (?P<shape>\(\d+,[\d, ]*\)) (?P<before>[-+.e\d ]+) (?P<started>{_MOMENT}) (?P<stopped>{_MOMENT})"
    r"(?P<after>(?: [-+.e\d]+)*)\s*"
)
_NAMED = re.compile(r"(?P<name>[a-z]\w*) (?P<shape>\(\d+,[\d, ]*\))")
# Which of the numbers before (and after) the moments a column is, and what it is multiplied by.
_COLUMNS = {
    "time_s": (0, 1.0),
    "power_w": (6, 1.0),
    "power_std_w": (7, 1.0),
    "energy_j": (1, 1e3),
    "energy_std_j": (3, 1e3),
    "iterations": (4, 1.0),
    "measured_for_s": (5, 1.0),
}
_TRAINING = {
    "time_s": (1, 1.0),
    "time_std_s": (2, 1.0),
    "power_w": (6, 1.0),
    "power_std_w": (7, 1.0),
    "energy_j": (3, 1e3),
    "energy_std_j": (4, 1e3),
    "measured_for_s": (5, 1.0),
}
_ORDER = ("gpu", "tf32", "mode", "started")


def operations(clone: Path) -> list[Mapping[str, Any]]:
    """The rows of operations.csv, sorted by GPU, TF32, mode and moment, from a clone with the whole history.

    Raises DatasetError: a blob is not in the clone, or is no such log.
    """
    rows = [row for log, blobs in _OPERATIONS.items() for blob in blobs for row in _rows(clone, log, blob, "module")]
    return sorted(rows, key=lambda row: tuple(str(row[name]) for name in _ORDER))


def networks(clone: Path) -> list[Mapping[str, Any]]:
    """The rows of networks.csv, in the order in which they were measured; see `operations`."""
    return [row for log, blobs in _NETWORKS.items() for blob in blobs for row in _rows(clone, log, blob, "network")]


def _rows(clone: Path, log: str, blob: str, column: str) -> Iterator[Mapping[str, Any]]:
    gpu = "NVIDIA GeForce RTX 2080 Ti" if "RTX2080TI" in log else "NVIDIA A30"
    known = {"gpu": gpu, "tf32": gpu == "NVIDIA A30" and "no_tc" not in log}
    last = ""
    for line in _log(clone, log, blob).splitlines():
        last = named["name"] if (named := _NAMED.fullmatch(line)) else last
        if not (found := _MEASURED.fullmatch(line)):
            continue
        try:
            before, after = ([*map(float, found[part].split())] for part in ("before", "after"))
            name = found["name"] if column == "module" else last
            end = {"started": found["started"], "stopped": found["stopped"], "source_file": log, "source_blob": blob}
            both = len(after) > 1
            mode = "training" if "train" in log and not both else "inference"
            std = {"time_std_s": after[0] if after else ""}
            of_this = {each: before[place] / unit for each, (place, unit) in _COLUMNS.items()}
            shown = {column: name, "input_shape": found["shape"]}
            yield {**known, "mode": mode, **shown, **dict.fromkeys(NUMBERS, ""), **of_this, **std, **end}
            if both:
                of_training = {each: after[place] / unit for each, (place, unit) in _TRAINING.items()}
                yield {**known, "mode": "training", **shown, **dict.fromkeys(NUMBERS, ""), **of_training, **end}
        except IndexError as error:
            raise DatasetError(
                "a line of this log has fewer numbers than were measured",
                given=f"{log}: {line}"[:300],
                allowed="the logs of the campaigns that are imported",
            ) from error


def _log(clone: Path, log: str, blob: str) -> str:
    program = shutil.which("git")
    command = [str(program), "-C", str(clone), "cat-file", "blob", blob]
    asked = program and subprocess.run(command, capture_output=True, check=False)
    if not asked or asked.returncode:
        raise DatasetError(
            "the clone lacks a log of a campaign",
            given=f"{clone}: blob {blob} of {log}",
            allowed="a clone with the whole history",
            hint=f"git -C {clone} fetch --unshallow",
        )
    return asked.stdout.decode("utf-8", errors="replace")
