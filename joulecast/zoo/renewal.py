"""Renews what entries say about themselves, after a mend that needs no training.

What an entry has learned stays the same, byte by byte. The golden prediction in its manifest is replaced by what
joulecast predicts with it now, and the sentences of its card by those that training would write today. Run
`python3 tasks.py golden`, and say in the commit which values moved, and why.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..predictors.contract import Networks
from ..predictors.evaluation import any_gpu, cpu, kernels, one_gpu
from ..predictors.evaluation.any_gpu import fit_hosts
from ..predictors.fitting.any_gpu import ANY_GPU_FORMS
from ..predictors.networks.composition import HostModel
from ..predictors.predictor import OperationPredictor
from ..system.resources import shipped
from . import any_gpu_training, kernels_training
from .entries.any_gpu_entry import read_any_gpu
from .entries.common_files import card_files, read_card
from .entries.cpu_entry import PREDICTOR as CPU
from .entries.cpu_entry import read_cpu_entry
from .entries.entry import read_entry
from .entries.files import MANIFEST, json_bytes, predictor_of, put_in_place, sha256_of, stored_files
from .entries.kernels_entry import PREDICTOR as KERNELS
from .training import limits_of

_ROUNDING = 1e-3  # Processors and libraries differ in rounding (golden.py), which is no reason to change an entry.


def renew_golden(folder: Path) -> float:
    """Replace the golden prediction of an entry by today's.

    Args:
        folder: Folder of the entry.

    Returns:
        The largest relative change of a golden value. If only rounding changed it is 0, and nothing is written.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    manifest, stored = stored_files(folder)
    predictor = predictor_of(manifest)
    read = read_any_gpu if predictor in ANY_GPU_FORMS else read_cpu_entry if predictor == CPU else read_entry
    _, _, golden = read(folder)
    before, now = (np.array([*_numbers(each)]) for each in (manifest["golden"], golden))
    largest = float(np.max(np.abs(now / before - 1)))
    if largest <= _ROUNDING:
        return 0.0
    put_in_place(folder, {**stored, MANIFEST: json_bytes({**manifest, "golden": golden})})
    return largest


def renew_hosts(folder: Path, networks: Networks) -> dict[str, HostModel]:
    """Learn again what a call costs the host inside a network, after a mend of how networks are composed.

    Args:
        folder: Folder of an entry for any GPU.
        networks: The measured networks that it was trained with. A mode of which there are none stays as it is.

    Returns:
        Mode -> what was learned.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    manifest, stored = stored_files(folder)
    entry, _, _ = read_any_gpu(folder)
    known = {measurement.mode for _, measurement, _ in networks}
    hosts = {
        **entry.hosts,
        **{mode: host for mode, host in fit_hosts(entry.learned, networks).items() if mode in known},
    }
    card = read_card(stored)
    _put(folder, manifest, stored, card_files({**card, "host": {mode: host.to_dict() for mode, host in hosts.items()}}))
    return hosts


def renew_card(folder: Path) -> bool:
    """Replace the sentences of an entry's card by today's. Its numbers and its data stay as they were.

    Args:
        folder: Folder of the entry.

    Returns:
        Whether anything changed.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    manifest, stored = stored_files(folder)
    card = read_card(stored)
    sentences: dict[str, Any]
    if predictor_of(manifest) == KERNELS:
        sentences = {"splits": kernels.SPLITS, "limits": kernels_training.LIMITS}
    elif predictor_of(manifest) in ANY_GPU_FORMS:
        quick = [any_gpu.QUICKLY] if card["splits"].endswith(any_gpu.QUICKLY) else []
        sentences = {"splits": " ".join([any_gpu.SPLITS, *quick]), "limits": any_gpu_training.LIMITS}
    elif predictor_of(manifest) == CPU:
        sentences = {"splits": cpu.SPLITS}  # Its limits depend on the measurements, which an entry does not hold.
    else:
        entry, _, _ = read_entry(folder)
        sentences = {
            "splits": one_gpu.SPLITS,
            "limits": limits_of(cast(OperationPredictor, entry.operations), entry.host),
        }
    files = card_files({**card, **sentences})
    if all(stored.get(name) == data for name, data in files.items()):
        return False
    _put(folder, manifest, stored, files)
    return True


def _put(folder: Path, manifest: dict[str, Any], stored: Mapping[str, bytes], changed: Mapping[str, bytes]) -> None:
    """Write an entry with some of its files changed, and their digests in its manifest."""
    facts = {name: {"sha256": sha256_of(data), "size_bytes": len(data)} for name, data in changed.items()}
    renewed = json_bytes({**manifest, "files": {**manifest["files"], **facts}})
    put_in_place(folder, {**stored, **changed, MANIFEST: renewed})


def _numbers(golden: dict[str, Any]) -> Iterator[float]:
    """All seconds and watts of a golden prediction, in the order of their names."""
    for name, value in sorted(golden.items()):
        if isinstance(value, dict):
            yield from _numbers(value)
        elif name != "operations":
            yield from value


def main() -> None:
    """Renew the golden predictions and cards of all shipped entries, and say what changed."""
    for manifest in sorted(shipped("zoo").glob(f"*/*/{MANIFEST}")):
        name = f"{manifest.parent.parent.name}/{manifest.parent.name}"
        if renew_card(manifest.parent):
            sys.stdout.write(f"{name}: the card has new sentences\n")
        if predictor_of(stored_files(manifest.parent)[0]) == KERNELS:
            continue  # Golden predictions of kernels hold device times only, which no mend of physics moves.
        largest = renew_golden(manifest.parent)
        sys.stdout.write(f"{name}: golden values moved by up to {100 * largest:.2g} %\n")


if __name__ == "__main__":
    main()
