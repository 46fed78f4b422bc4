"""Renews what zoo entries say about themselves, after a mend that needs no training: `python3 tasks.py golden`.

What an entry has learned stays the same, byte by byte. The golden prediction in its manifest is replaced by what
joulecast predicts with it now, and the sentences of its card by those that training would write today. Say in the
commit which values moved, and why.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from joulecast.predictors.evaluation import any_gpu, kernels, one_gpu
from joulecast.predictors.fitting.forms import ANY_GPU_FORMS
from joulecast.system.resources import shipped
from joulecast.zoo.cards import card_files
from joulecast.zoo.catalogue import entries
from joulecast.zoo.entry import Entry
from joulecast.zoo.files import StoredEntry
from joulecast.zoo.golden import samples_of
from joulecast.zoo.kinds import CPU_PREDICTOR, KERNELS_PREDICTOR
from joulecast.zoo.limits import ANY_GPU_LIMITS, limits_of, limits_of_kernels

_ROUNDING = 1e-3  # Processors and libraries differ in rounding (cards.py), which is no reason to change an entry.


def renew_golden(folder: Path) -> float:
    """Replace the golden prediction of an entry by today's.

    Returns the largest relative change of a golden value. If only rounding changed it is 0, and nothing is written.
    Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    entry = Entry.of(folder)
    golden, largest = entry.golden(), 0.0
    for (_, now), (_, before) in zip(samples_of(golden), entry.samples, strict=True):
        moved = (np.divide(now[name], before[name]) - 1 for name in now if name.endswith(("_s", "_w")))
        largest = max(largest, *(float(np.max(np.abs(each))) for each in moved))
    if largest <= _ROUNDING:
        return 0.0
    entry.stored.replace({}, golden=golden)
    return largest


def renew_card(folder: Path) -> bool:
    """Replace the sentences of an entry's card by today's. Its numbers and its data stay as they were.

    Returns whether anything changed. Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    stored = StoredEntry.of(folder)
    return stored.replace(card_files({**stored.card, **_sentences(stored)}))


def _sentences(stored: StoredEntry) -> dict[str, Any]:
    """What training would write into the card today."""
    if stored.predictor == KERNELS_PREDICTOR:
        return {"splits": kernels.SPLITS, "limits": limits_of_kernels(Entry.of(stored.where).predictor)}
    if stored.predictor in ANY_GPU_FORMS:
        quick = [any_gpu.QUICKLY] if stored.card["splits"].endswith(any_gpu.QUICKLY) else []
        return {"splits": " ".join([any_gpu.SPLITS, *quick]), "limits": ANY_GPU_LIMITS}
    if stored.predictor == CPU_PREDICTOR:
        return {"splits": one_gpu.CPU_SPLITS}  # Its limits depend on the measurements, which an entry does not hold.
    own = Entry.of(stored.where).predictor
    return {"splits": one_gpu.SPLITS, "limits": limits_of(own.operations.chip, own.host)}


def main() -> None:
    """Renew the golden predictions and cards of all shipped entries, and say what changed."""
    for name in entries():
        folder = shipped("zoo") / name
        if renew_card(folder):
            print(f"{name}: the card has new sentences")
        if StoredEntry.of(folder).predictor == KERNELS_PREDICTOR:
            continue  # Golden predictions of kernels hold device times only, which no mend of physics moves.
        largest = renew_golden(folder)
        print(f"{name}: golden values moved by up to {100 * largest:.2g} %")


if __name__ == "__main__":
    main()
