"""Renews what entries say about themselves, after a mend that needs no training.

What an entry has learned stays the same, byte by byte. The golden prediction in its manifest is replaced by what
joulecast predicts with it now, and the sentences of its card by those that training would write today. Run
`python3 tasks.py golden`, and say in the commit which values moved, and why.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..predictors.contract import Networks
from ..predictors.evaluation import any_gpu, kernels, one_gpu
from ..predictors.fitting.fit import ANY_GPU_FORMS
from ..predictors.networks.composition import HostModel
from ..predictors.networks.prepared import NetworkPredictor
from ..system.resources import shipped
from .catalogue import entries
from .entries.any_gpu_entry import AnyGpuEntry
from .entries.cards import card_files
from .entries.cpu_entry import CPU_PREDICTOR
from .entries.entry import read_entry
from .entries.files import StoredEntry, put_in_place
from .entries.kernels_entry import KERNELS_PREDICTOR
from .entries.stored import golden_values
from .kernels_training import LIMITS as KERNELS_LIMITS
from .training import ANY_GPU_LIMITS, limits_of

_ROUNDING = 1e-3  # Processors and libraries differ in rounding (stored.py), which is no reason to change an entry.


def renew_golden(folder: Path) -> float:
    """Replace the golden prediction of an entry by today's.

    Returns the largest relative change of a golden value. If only rounding changed it is 0, and nothing is written.
    Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    _, entry, golden = read_entry(folder)
    largest = max(float(np.max(np.abs(np.divide(*pair) - 1))) for pair in golden_values(golden, entry.golden))
    if largest <= _ROUNDING:
        return 0.0
    put_in_place(folder, entry.with_files({}, golden=golden))
    return largest


def renew_hosts(folder: Path, networks: Networks) -> dict[str, HostModel]:
    """Learn again what a call costs the host inside a network, after a mend of how networks are composed.

    Returns mode -> what was learned. Raises ZooError: the entry is missing, damaged, changed, or of another format.

    Args:
        networks: The measured networks that it was trained with. A mode of which there are none stays as it is.
    """
    entry = cast(AnyGpuEntry, read_entry(folder)[0])
    measured = {measurement.mode for _, measurement, _ in networks}
    learned = any_gpu.fit_hosts(entry.shared, networks)
    hosts = {**entry.hosts, **{mode: host for mode, host in learned.items() if mode in measured}}
    _renew_card(StoredEntry.of(folder), {"host": {mode: host.to_dict() for mode, host in hosts.items()}})
    return hosts


def renew_card(folder: Path) -> bool:
    """Replace the sentences of an entry's card by today's. Its numbers and its data stay as they were.

    Returns whether anything changed. Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    stored = StoredEntry.of(folder)
    return _renew_card(stored, _sentences(stored))


def _sentences(stored: StoredEntry) -> dict[str, Any]:
    """What training would write into the card today."""
    if stored.predictor == KERNELS_PREDICTOR:
        return {"splits": kernels.SPLITS, "limits": KERNELS_LIMITS}
    if stored.predictor in ANY_GPU_FORMS:
        quick = [any_gpu.QUICKLY] if stored.card["splits"].endswith(any_gpu.QUICKLY) else []
        return {"splits": " ".join([any_gpu.SPLITS, *quick]), "limits": ANY_GPU_LIMITS}
    if stored.predictor == CPU_PREDICTOR:
        return {"splits": one_gpu.CPU_SPLITS}  # Its limits depend on the measurements, which an entry does not hold.
    entry = cast(NetworkPredictor, read_entry(stored.where)[0])
    (chip,) = entry.operations.chips.values()
    limits = limits_of(chip, entry.host)
    return {"splits": one_gpu.SPLITS, "limits": limits}


def _renew_card(stored: StoredEntry, renewed: Mapping[str, Any]) -> bool:
    """Change values of an entry's card. Returns whether anything changed."""
    files = card_files({**stored.card, **renewed})
    if all(stored.files.get(name) == data for name, data in files.items()):
        return False
    put_in_place(stored.where, stored.with_files(files))
    return True


def main() -> None:
    """Renew the golden predictions and cards of all shipped entries, and say what changed."""
    for name in entries():
        folder = shipped("zoo") / name
        if renew_card(folder):
            sys.stdout.write(f"{name}: the card has new sentences\n")
        if StoredEntry.of(folder).predictor == KERNELS_PREDICTOR:
            continue  # Golden predictions of kernels hold device times only, which no mend of physics moves.
        largest = renew_golden(folder)
        sys.stdout.write(f"{name}: golden values moved by up to {100 * largest:.2g} %\n")


if __name__ == "__main__":
    main()
