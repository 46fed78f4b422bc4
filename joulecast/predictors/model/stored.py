"""How the one model of kernels is stored: facts, and a file of trees for each generation and group of kernels.

A GPU needs the trees of its own generation only, so they can be read when they are first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import damaged_entry
from ...hardware import find_gpu
from ..contract import Files, Regressor
from ..formats.numbers import errors_to_text, number, require_features, sorted_errors
from ..intervals.network_calibration import NETWORK_QUANTITIES
from ..regressors.trees import StoredTrees, stored_trees, trees_file
from .basis import BASES
from .features import NAMES
from .in_networks import NetworkFactors
from .learned import NETWORK_BASES, Key, OneModel
from .physics import STARTS
from .power import POWER_NAMES, PowerDemand

_MOST_TREES = 128
_MOST_FACTOR = 3.0
_MOST_CYCLES = 3.0
_INPUTS = {"": len(NAMES), "power-": len(NAMES) + len(POWER_NAMES)}
"""Beginning of the names of files: of trees for device times and for power -> number of their inputs."""

Read = TypeVar("Read")


@dataclass(eq=False)
class LazyTrees:
    """Trees of an entry, read when they are first used.

    Args:
        check: Compares their golden prediction; called once, before they predict anything else.
    """

    files: Files
    name: str
    columns: int
    check: Callable[[], None] | None = None

    @cached_property
    def _trees(self) -> StoredTrees:
        return stored_trees(self.files, self.name, self.columns)

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """Predict one value per row of inputs.

        Raises ZooError: the trees are missing or damaged, or their golden prediction comes out differently.
        """
        check, self.check = self.check, None
        if check is not None:
            try:
                check()
            except BaseException:
                self.check = check
                raise
        return self._trees(inputs)

    def to_files(self, name: str) -> dict[str, bytes]:
        """The file that they were read from, to be written unchanged into a new entry."""
        return {trees_file(name): self.files[trees_file(self.name)]}


def one_model_to_files(model: OneModel) -> tuple[dict[str, Any], dict[str, bytes]]:
    """How the model is stored: facts as plain lists and dictionaries, and files with trees, by name."""
    power, files = model.power, {}
    for prefix, trees in zip(_INPUTS, (model.trees, power.trees), strict=True):
        for (generation, group), regressor in trees.items():
            name = f"{prefix}{group}-{generation}"
            # XGBoost's native form is left out: there are many regressors, and neither training nor explanations need
            # it.
            files[trees_file(name)] = regressor.to_files(name)[trees_file(name)]
    facts = {
        "inputs": [*NAMES, *POWER_NAMES],
        "constants": model.constants.tolist(),
        "trees": sorted(model.trees),
        "measured": {part: sorted(gpus) for part, gpus in model.measured.items()},
        "trust": dict(model.trust),
        "errors": {part: errors_to_text(errors) for part, errors in model.errors.items()},
        "power": {
            "trees": sorted(power.trees),
            "measured": {part: sorted(gpus) for part, gpus in power.measured.items()},
            "errors": {
                part: {basis: errors_to_text(errors) for basis, errors in of_part.items()}
                for part, of_part in power.errors.items()
            },
        },
        "in_networks": model.network_factors._asdict(),
        "network_errors": {basis: dict(errors) for basis, errors in model.network_errors.items()},
    }
    return facts, files


def one_model_from_files(
    facts: Mapping[str, Any], files: Files, regressor: Callable[[Files, str, int], Regressor] = stored_trees
) -> OneModel:
    """Read what `one_model_to_files` wrote; `regressor` reads trees, or is LazyTrees, which read them later.

    Raises ZooError, InputError, LookupError, TypeError, ValueError: it is something else.
    """
    power = facts["power"]
    require_features(facts["inputs"], [*NAMES, *POWER_NAMES], "kernels")
    constants = np.array(facts["constants"], dtype=float)
    if constants.shape != STARTS.shape or not np.isfinite(constants).all() or (constants <= 0).any():
        raise damaged_entry("the constants of physics are not positive numbers", constants.shape, STARTS.shape)
    networks, measured = facts.get("network_errors", {}), _names(facts["measured"])
    read = partial(regressor, files)
    return OneModel(
        constants=constants,
        trees=_read_trees(facts["trees"], "", read),
        measured=measured,
        trust={part: number(facts["trust"].get(part, 0.0)) for part in measured},
        errors=_by_basis(facts["errors"], sorted_errors),
        power=PowerDemand(
            _read_trees(power["trees"], "power-", read),
            _names(power["measured"]),
            _by_basis(power["errors"], lambda errors: {q: sorted_errors(errors[q]) for q in ("power", "energy")}),
        ),
        network_factors=_network_factors(facts.get("in_networks", {})),
        network_errors={
            basis: {name: tuple(sorted_errors(networks[basis][name]).tolist()) for name in NETWORK_QUANTITIES}
            for basis in NETWORK_BASES
            if basis in networks
        },
    )


def _names(facts: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    return {str(part): frozenset(find_gpu(str(name)).name for name in names) for part, names in facts.items()}


def _by_basis(facts: Mapping[str, Mapping[str, Any]], read: Callable[[Any], Read]) -> dict[str, dict[str, Read]]:
    """Errors by part and basis, each read by a function. Raises ZooError: there is no such basis."""
    if unknown := {basis for of_part in facts.values() for basis in of_part} - {*BASES}:
        raise damaged_entry("a zoo entry has errors of an unknown basis", min(unknown), ", ".join(BASES))
    return {part: {basis: read(errors) for basis, errors in of_part.items()} for part, of_part in facts.items()}


def _read_trees(keys: Sequence[Any], prefix: str, read: Callable[[str, int], Regressor]) -> dict[Key, Regressor]:
    if len(keys) > _MOST_TREES:
        raise damaged_entry("a zoo entry has an impossible number of trees", len(keys), f"up to {_MOST_TREES}")
    inputs = _INPUTS[prefix]
    return {(str(generation), str(group)): read(f"{prefix}{group}-{generation}", inputs) for generation, group in keys}


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
