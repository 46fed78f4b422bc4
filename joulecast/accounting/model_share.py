"""Joules of an accounting that are divided by a prediction.

A sensor is too slow to measure single operators, so their joules are usually divided by time, as if all of them drew
the same power. A prediction is more precise: a matrix product draws more power than a copy. Static power is drawn all
the time, so its energy is still divided by time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..arrays import FloatArray
from ..energy import EnergyTree, Figure, Row, Share
from ..errors import InputError
from ..predictors.networks.memory_levels import DYNAMIC, STATIC
from .shares import NO_MODULE

Key = tuple[str, str]
"""Phase and module path."""


def tree_by_module(tree: EnergyTree, component: str | None = None) -> dict[Key, float]:
    """Phase and module -> joules of the operators that the module runs itself, without those of its parts.

    Args:
        component: The component whose joules are wanted, such as "dynamic"; None for all components.
    """
    found: dict[Key, float] = {}
    for node in tree.root.walk():
        if not node.own.energy or node.path == NO_MODULE:
            continue
        parts = node.own.by_component()
        chosen = parts.values() if component is None else [parts[component]] if component in parts else []
        # Predictions list the step of an optimizer as a part of its own.
        key = (node.phase or "other", "" if node.phase == "optimizer" else node.path)
        found[key] = found.get(key, 0.0) + sum(figure.value for figure in chosen)
    return found


def model_shares(
    rows: Sequence[Row],
    unattributed: Share,
    predicted_j: Mapping[Key, float],
    static_w: Mapping[tuple[str, str], float],
) -> tuple[tuple[Row, ...], Share]:
    """Divide the joules of each counter anew; their sum does not change.

    Time without operators gets only static joules. A module without a prediction is taken to have the mean dynamic
    power of the others. The joules of a module are divided between its operators by time. Returns the rows and the
    unattributed share, with static and dynamic joules. Raises InputError: no module that ran has a prediction.

    Args:
        rows: Seconds and joules of each place, divided by time.
        static_w: Device and component of a counter -> static power in watts.
    """
    everything = [*(row.share for row in rows), unattributed]
    energies: list[dict[tuple[str, str], Figure]] = [{} for _ in everything]
    for part in static_w:
        figures = [share.energy.get(part) for share in everything]
        seconds = np.array([_seconds(share, part[0]) for share in everything])
        total_j = sum(figure.value for figure in figures if figure)
        static_j = seconds * min(static_w[part], total_j / seconds.sum() if seconds.sum() else 0.0)
        dynamic_j = (total_j - static_j.sum()) * _weights(rows, seconds[:-1], predicted_j)
        unknown = min(1, sum(figure.unknown for figure in figures if figure))
        for i, energy in enumerate(energies):
            energy[part[0], STATIC] = Figure(float(static_j[i]), "modelled")
            if i < len(rows):
                energy[part[0], DYNAMIC] = Figure(max(0.0, float(dynamic_j[i])), "modelled", unknown)
    shared = tuple(
        Row(row.path, Share(row.share.time, energy), row.operation, row.phase, row.calls)
        for row, energy in zip(rows, energies, strict=False)
    )
    return shared, Share(unattributed.time, energies[-1])


def _seconds(share: Share, counter: str) -> float:
    """Seconds of a share on the device that a counter measures."""
    time = share.time
    return time[counter].value if counter in time else sum(f.value for d, f in time.items() if not d.startswith("gpu"))


def _weights(rows: Sequence[Row], seconds: FloatArray, predicted_j: Mapping[Key, float]) -> FloatArray:
    """Share of each row in the dynamic joules, shape (rows,); they sum up to 1."""
    in_module: dict[Key, float] = {}
    for row, value in zip(rows, seconds.tolist(), strict=True):
        in_module[row.phase, row.path] = in_module.get((row.phase, row.path), 0.0) + value
    known = {key: joules for key, joules in predicted_j.items() if in_module.get(key)}
    if not sum(known.values()):
        raise InputError(
            "the prediction contains no module that ran",
            given=", ".join(sorted({row.path or "(model)" for row in rows})[:6]),
            allowed=", ".join(sorted({path or "(model)" for _, path in predicted_j})[:6]) or "no modules",
            hint="predict the same model, in the same mode",
        )
    mean_w = sum(known.values()) / sum(in_module[key] for key in known)
    raw: FloatArray = np.array(
        [
            value * (known[key] / in_module[key] if (key := (row.phase, row.path)) in known else mean_w)
            for row, value in zip(rows, seconds.tolist(), strict=True)
        ]
    )
    weights: FloatArray = raw / raw.sum()
    return weights
