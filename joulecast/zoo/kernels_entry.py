"""The zoo entry of the one model of kernels, which predictors for any GPU use in half precision and below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import FloatArray
from ..errors import ZooError, damaged_entry
from ..hardware import find_gpu
from ..operations.operation import Operation
from ..operations.operation_list import OperationList
from ..predictors.contract import Regressor
from ..predictors.formats.numbers import errors_to_text, number, require_features, sorted_errors
from ..predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ..predictors.model.basis import BASES
from ..predictors.model.features import NAMES
from ..predictors.model.in_networks import NetworkFactors
from ..predictors.model.learned import NETWORK_BASES, Key, OneModel
from ..predictors.model.physics import STARTS
from ..predictors.model.power import POWER_NAMES, PowerDemand
from ..predictors.regressors.trees import StoredTrees, stored_trees, trees_file
from .cards import Content, golden_operations, name_of, refusing_damage, require_agreement
from .files import StoredEntry

KERNELS_PREDICTOR = "kernels"
_MOST_TREES = 128
_MOST_FACTOR = 3.0
_MOST_CYCLES = 3.0
_INPUTS = {"": len(NAMES), "power-": len(NAMES) + len(POWER_NAMES)}
"""Beginning of the names of files: of trees for device times and for power -> number of their inputs."""

Read = TypeVar("Read")
Golden = Mapping[Key, tuple[str, Sequence[Operation]]]
"""Generation and group -> a GPU of this generation, and kernels of this group that are predicted on it."""


@dataclass(frozen=True, eq=False)
class KernelsEntry:
    """A loaded entry.

    Args:
        kernels: What it has learned. Trees are read and checked when they are first needed.
    """

    name: str
    kernels: OneModel
    golden: Golden
    card: Mapping[str, Any]

    def check(self) -> None:
        """Read and check all trees.

        Raises ZooError: trees are damaged, or a golden prediction comes out differently.
        """
        for trees, inputs in zip((self.kernels.trees, self.kernels.power.trees), _INPUTS.values(), strict=True):
            for regressor in trees.values():
                regressor(np.zeros((1, inputs), np.float32))


def content_of_kernels(model: OneModel, golden: Golden) -> Content:
    """The content of the entry."""
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
    shown = [
        {
            "trees": list(key),
            "gpu": gpu,
            "operations": [operation.to_dict() for operation in operations],
            "device_s": model.device_s(OperationList(operations), find_gpu(gpu)).tolist(),
        }
        for key, (gpu, operations) in sorted(golden.items())
    ]
    return Content(KERNELS_PREDICTOR, facts, files, {"kernels": shown})


def not_by_itself(name: str) -> ZooError:
    """Build the error for a user who asks device times of kernels for a prediction."""
    return ZooError(
        "device times of kernels are used by other predictors, and predict nothing by themselves",
        given=name,
        allowed="the name of another entry, such as any-gpu/forest",
    )


def read_kernels(stored: StoredEntry) -> tuple[KernelsEntry, dict[str, Any]]:
    """The entry, with all trees checked; the golden prediction of each is compared when it is read."""
    entry = load_kernels(stored)
    entry.check()
    return entry, {}


def load_kernels(folder: str | Path | StoredEntry) -> KernelsEntry:
    """Load the entry. Its trees are checked when they are first needed.

    Raises ZooError: the entry is missing, damaged, changed, or of another format.
    """
    stored = folder if isinstance(folder, StoredEntry) else StoredEntry.of(folder)
    with refusing_damage(stored.where):
        facts, power = stored.facts, stored.facts["power"]
        require_features(facts["inputs"], [*NAMES, *POWER_NAMES], KERNELS_PREDICTOR)
        constants = np.array(facts["constants"], dtype=float)
        if constants.shape != STARTS.shape or not np.isfinite(constants).all() or (constants <= 0).any():
            raise damaged_entry("the constants of physics are not positive numbers", constants.shape, STARTS.shape)
        networks = facts.get("network_errors", {})
        golden = {(str(row["trees"][0]), str(row["trees"][1])): row for row in stored.golden["kernels"]}
        shown = {key: (str(row["gpu"]), golden_operations(row["operations"])) for key, row in golden.items()}
        measured = _names(facts["measured"])
        model = OneModel(
            constants=constants,
            trees=_read_trees(facts["trees"], stored, ""),
            measured=measured,
            trust={part: number(facts["trust"].get(part, 0.0)) for part in measured},
            errors=_by_basis(facts["errors"], sorted_errors),
            power=PowerDemand(
                _read_trees(power["trees"], stored, "power-"),
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

        def agree(key: Key) -> None:
            gpu, operations = shown[key]
            with refusing_damage(stored.where):
                again = model.device_s(OperationList(operations), find_gpu(gpu))
            require_agreement(stored, {"device_s": again}, golden[key])

        for key, trees in model.trees.items():
            if key in golden:
                trees.check = partial(agree, key)  # type: ignore[attr-defined]
    return KernelsEntry(name_of(stored.card["name"]), model, shown, stored.card)


def _names(facts: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    return {str(part): frozenset(find_gpu(str(name)).name for name in names) for part, names in facts.items()}


def _by_basis(facts: Mapping[str, Mapping[str, Any]], read: Callable[[Any], Read]) -> dict[str, dict[str, Read]]:
    """Errors by part and basis, each read by a function. Raises ZooError: there is no such basis."""
    if unknown := {basis for of_part in facts.values() for basis in of_part} - {*BASES}:
        raise damaged_entry("a zoo entry has errors of an unknown basis", min(unknown), ", ".join(BASES))
    return {part: {basis: read(errors) for basis, errors in of_part.items()} for part, of_part in facts.items()}


def _read_trees(keys: Sequence[Any], files: StoredEntry, prefix: str) -> dict[Key, Regressor]:
    if len(keys) > _MOST_TREES:
        raise damaged_entry("a zoo entry has an impossible number of trees", len(keys), f"up to {_MOST_TREES}")
    return {
        (str(generation), str(group)): LazyTrees(files, f"{prefix}{group}-{generation}", _INPUTS[prefix])
        for generation, group in keys
    }


def _network_factors(facts: Mapping[str, Any]) -> NetworkFactors:
    """Factors of networks, as `content_of_kernels` wrote them."""
    plain = NetworkFactors()
    products, cycles = (float(facts.get(name, getattr(plain, name))) for name in ("products", "cycles"))
    if not (1 / _MOST_FACTOR <= products <= _MOST_FACTOR and 0 <= cycles <= _MOST_CYCLES):
        raise damaged_entry(
            "a zoo entry has impossible network factors",
            f"products {products:g}, cycles {cycles:g}",
            f"products up to {_MOST_FACTOR:g} and at least its inverse, cycles from 0 to {_MOST_CYCLES:g}",
        )
    return NetworkFactors(products, cycles, tuple(map(str, facts.get("chips", ()))))


@dataclass(eq=False)
class LazyTrees:
    """Trees of an entry, read when they are first used. A GPU needs those of its own generation only.

    Args:
        check: Compares their golden prediction; called once, after they are read.
    """

    files: StoredEntry
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
