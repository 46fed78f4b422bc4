"""How the one model of kernels is stored: facts, and a file of trees for each generation and group of kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import damaged_entry
from ...hardware import find_gpu
from ..contract import Files
from ..formats.numbers import errors_to_text, number, require_features, sorted_errors
from ..intervals.network_calibration import NETWORK_QUANTITIES
from ..regressors.trees import stored_trees, trees_file
from .basis import BASES, PartTrees
from .features import NAMES
from .in_networks import NetworkFactors
from .learned import NETWORK_BASES, OneModel
from .physics import STARTS
from .power import POWER_NAMES, PowerDemand

_MOST_TREES = 128
_MOST_FACTOR = 3.0
_MOST_CYCLES = 3.0
_INPUTS = {"": len(NAMES), "power-": len(NAMES) + len(POWER_NAMES)}
"""Beginning of the names of files: of trees for device times and for power -> number of their inputs."""


def one_model_to_files(model: OneModel) -> tuple[dict[str, Any], dict[str, bytes]]:
    """How the model is stored: facts as plain lists and dictionaries, and files with trees, by name."""
    files = {}
    for prefix, learned in zip(_INPUTS, (model, model.power), strict=True):
        for (generation, group), regressor in learned.trees.items():
            name = f"{prefix}{group}-{generation}"
            # XGBoost's native form is left out: there are many regressors, and neither training nor explanations need
            # it.
            files[trees_file(name)] = regressor.to_files(name)[trees_file(name)]
    facts = {
        "inputs": [*NAMES, *POWER_NAMES],
        "constants": model.constants.tolist(),
        "trust": dict(model.trust),
        **_facts(model, lambda errors: errors["time"]),
        "power": _facts(model.power, lambda errors: errors),
        "in_networks": model.network_factors._asdict(),
        "network_errors": {basis: dict(errors) for basis, errors in model.network_errors.items()},
    }
    return facts, files


def _facts(learned: PartTrees, stored: Callable[[dict[str, str]], Any]) -> dict[str, Any]:
    """What is stored of trees beside their files."""
    return {
        "trees": sorted(learned.trees),
        "measured": {part: sorted(gpus) for part, gpus in learned.measured.items()},
        "errors": {
            part: {basis: stored(errors_to_text(errors)) for basis, errors in of_part.items()}
            for part, of_part in learned.errors.items()
        },
    }


def one_model_from_files(facts: Mapping[str, Any], files: Files) -> OneModel:
    """Read what `one_model_to_files` wrote; trees are read when they are first used.

    Raises ZooError, InputError, LookupError, TypeError, ValueError: it is something else.
    """
    require_features(facts["inputs"], [*NAMES, *POWER_NAMES], "kernels")
    constants = np.array(facts["constants"], dtype=float)
    if constants.shape != STARTS.shape or not np.isfinite(constants).all() or (constants <= 0).any():
        raise damaged_entry("the constants of physics are not positive numbers", constants.shape, STARTS.shape)
    networks, times = facts.get("network_errors", {}), _read(facts, files, "", ("time",))
    return OneModel(
        constants=constants,
        trust={part: number(facts["trust"].get(part, 0.0)) for part in times["measured"]},
        power=PowerDemand(**_read(facts["power"], files, "power-", ("power", "energy"))),
        network_factors=_network_factors(facts.get("in_networks", {})),
        network_errors={
            basis: {name: tuple(sorted_errors(networks[basis][name]).tolist()) for name in NETWORK_QUANTITIES}
            for basis in NETWORK_BASES
            if basis in networks
        },
        **times,
    )


def _read(facts: Mapping[str, Any], files: Files, prefix: str, quantities: Sequence[str]) -> dict[str, Any]:
    """Read what `_facts` wrote, and the trees. Raises ZooError: there are too many trees, or errors of no basis."""
    keys, inputs = facts["trees"], _INPUTS[prefix]
    if len(keys) > _MOST_TREES:
        raise damaged_entry("a zoo entry has an impossible number of trees", len(keys), f"up to {_MOST_TREES}")
    if unknown := {basis for of_part in facts["errors"].values() for basis in of_part} - {*BASES}:
        raise damaged_entry("a zoo entry has errors of an unknown basis", min(unknown), ", ".join(BASES))
    errors = {
        part: {basis: each if prefix else {"time": each} for basis, each in of_part.items()}
        for part, of_part in facts["errors"].items()
    }
    return {
        "trees": {
            (str(name), str(group)): stored_trees(files, f"{prefix}{group}-{name}", inputs) for name, group in keys
        },
        "measured": {
            str(part): frozenset(find_gpu(str(name)).name for name in names)
            for part, names in facts["measured"].items()
        },
        "errors": {
            part: {basis: {q: sorted_errors(each[q]) for q in quantities} for basis, each in of_part.items()}
            for part, of_part in errors.items()
        },
    }


def _network_factors(facts: Mapping[str, Any]) -> NetworkFactors:
    """Factors of networks, as `one_model_to_files` wrote them."""
    plain = NetworkFactors()
    products, cycles = (float(facts.get(name, getattr(plain, name))) for name in ("products", "cycles"))
    if not (1 / _MOST_FACTOR <= products <= _MOST_FACTOR and 0 <= cycles <= _MOST_CYCLES):
        raise damaged_entry(
            "a zoo entry has impossible network factors",
            f"products {products:g}, cycles {cycles:g}",
            f"products up to {_MOST_FACTOR:g} and at least its inverse, cycles from 0 to {_MOST_CYCLES:g}",
        )
    return NetworkFactors(products, cycles, tuple(map(str, facts.get("chips", ()))))
