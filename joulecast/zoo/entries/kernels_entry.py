"""The zoo entry of device times of kernels, which predictors for any GPU use in half precision and below.

Constants of each variant of a family of kernels are stored as JSON, and each of its tree models in a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry, unknown_name
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...predictors.contract import Regressor
from ...predictors.formats.numbers import errors_to_text, require_features, sorted_errors
from ...predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ...predictors.kernels.basis import BASES
from ...predictors.kernels.families import FAMILIES
from ...predictors.kernels.family import Family, Names
from ...predictors.kernels.in_networks import NetworkFactors
from ...predictors.kernels.learned import NETWORK_BASES, Kernels, NetworkBasis
from ...predictors.kernels.power import POWER_NAMES, PowerDemand
from ...predictors.kernels.variant import ALL, Variant
from ...predictors.regressors.trees import StoredTrees, stored_trees, trees_file
from .cards import KernelsCard, name_of
from .files import EntryFiles
from .stored import Stored, golden_operations, refusing_damage, require_agreement, save_as_entry, stored_entry

KERNELS_PREDICTOR = "kernels"
_MOST_VARIANTS = 64
_MOST_FACTOR = 3.0
_MOST_CYCLES = 3.0
_OTHER_GENERATIONS = "other-generations"
_POWER = "power-"

Golden = Mapping[Names, tuple[str, Sequence[Operation]]]
"""Family and variant -> a GPU, and operations that are predicted on it."""


@dataclass(frozen=True, eq=False)
class KernelsEntry:
    """A loaded entry.

    Args:
        name: Name of the entry.
        kernels: What it has learned. Each variant is read and checked when it is first needed.
        golden: Operations of its golden prediction.
        card: Card of the entry, as a dictionary.
    """

    name: str
    kernels: Kernels
    golden: Golden
    card: Mapping[str, Any]

    def check(self) -> None:
        """Read and check every variant.

        Raises:
            ZooError: A variant is damaged, or its golden prediction comes out differently.
        """
        for names in self.kernels.variants:
            self.kernels.variants[names]


def save_kernels(folder: str | Path, kernels: Kernels, card: KernelsCard, golden: Golden) -> Path:
    """Write the entry.

    Args:
        folder: Folder to write, such as zoo/any-gpu/kernels.
        kernels: The fitted families and variants.
        card: Card of the entry.
        golden: Operations of the golden prediction.
    """
    files: dict[str, bytes] = {}
    facts = []
    for (family, variant), learned in sorted(kernels.variants.items()):
        of_variant, stored = _write_variant((family, variant), learned)
        facts.append(of_variant)
        files |= stored
    predictor = {
        "variants": facts,
        "in_networks": kernels.network_factors._asdict(),
        "network_errors": {basis: dict(errors) for basis, errors in kernels.network_errors.items()},
    }
    shown = [
        {
            "family": family,
            "variant": variant,
            "gpu": gpu,
            "operations": [operation.to_dict() for operation in operations],
            "device_s": _device_s(family, kernels.variants[family, variant], gpu, operations).tolist(),
        }
        for (family, variant), (gpu, operations) in sorted(golden.items())
    ]
    return save_as_entry(folder, card, predictor, files, {"variants": shown}, KERNELS_PREDICTOR)


def not_by_itself(name: str) -> ZooError:
    """Build the error for a user who asks device times of kernels for a prediction."""
    return ZooError(
        "device times of kernels are used by other predictors, and predict nothing by themselves",
        given=name,
        allowed="the name of another entry, such as any-gpu/boosting",
    )


def load_kernels(folder: str | Path) -> KernelsEntry:
    """Load the entry. Its variants are checked when they are first needed.

    Raises:
        ZooError: The entry is missing, damaged, changed, or of another format.
    """
    return _kernels_entry(stored_entry(folder))


def read_kernels(stored: Stored) -> tuple[KernelsEntry, dict[str, Any]]:
    """The entry, with every variant checked; the golden prediction of each is compared when it is read."""
    entry = _kernels_entry(stored)
    entry.check()
    return entry, {}


def _kernels_entry(stored: Stored) -> KernelsEntry:
    with refusing_damage(stored.folder):
        facts = stored.facts["variants"]
        factors = _network_factors(stored.facts.get("in_networks", {}))
        if not 0 < len(facts) <= _MOST_VARIANTS:
            raise damaged_entry(
                "a zoo entry has an impossible number of variants", len(facts), f"1 to {_MOST_VARIANTS}"
            )
        golden = {
            (row["family"], row["variant"]): (str(row["gpu"]), golden_operations(row["operations"]))
            for row in stored.golden["variants"]
        }
        variants = _StoredVariants(stored, {(str(fact["family"]), str(fact["variant"])): fact for fact in facts})
        kernels = Kernels(variants, factors, _network_errors(stored.facts.get("network_errors", {})))
        return KernelsEntry(name_of(stored.card["name"]), kernels, golden, stored.card)


def _network_factors(facts: Mapping[str, Any]) -> NetworkFactors:
    """Factors of networks, as `save_kernels` wrote them."""
    plain = NetworkFactors()
    products, cycles = (float(facts.get(name, getattr(plain, name))) for name in ("products", "cycles"))
    if not (1 / _MOST_FACTOR <= products <= _MOST_FACTOR and 0 <= cycles <= _MOST_CYCLES):
        raise damaged_entry(
            "a zoo entry has impossible network factors",
            f"products {products:g}, cycles {cycles:g}",
            f"products up to {_MOST_FACTOR:g} and at least its inverse, cycles from 0 to {_MOST_CYCLES:g}",
        )
    return NetworkFactors(products, cycles, tuple(map(str, facts.get("chips", ()))))


def _network_errors(facts: Mapping[str, Any]) -> dict[NetworkBasis, Mapping[str, tuple[float, ...]]]:
    """Errors on networks, as `save_kernels` wrote them."""
    return {
        basis: {name: tuple(sorted_errors(facts[basis][name]).tolist()) for name in NETWORK_QUANTITIES}
        for basis in NETWORK_BASES
        if basis in facts
    }


class _StoredVariants(Mapping[Names, Variant]):
    """Variants of an entry, each read when it is first needed. A prediction needs one or two of them."""

    def __init__(self, stored: Stored, facts: Mapping[Names, Any]) -> None:
        self._stored, self._facts = stored, facts
        self._read: dict[Names, Variant] = {}

    def __getitem__(self, names: Names) -> Variant:
        """The variant.

        Raises:
            ZooError: The variant is damaged, or its golden prediction comes out differently.
        """
        if names not in self._read:
            stored = self._stored
            with refusing_damage(stored.folder):
                variant = _read_variant(names, self._facts[names], stored.files)
                rows = [row for row in stored.golden["variants"] if (row["family"], row["variant"]) == names]
                pairs = [
                    (_device_s(names[0], variant, row["gpu"], golden_operations(row["operations"])), row["device_s"])
                    for row in rows
                ]
            require_agreement(stored, pairs)
            self._read[names] = variant
        return self._read[names]

    def __contains__(self, names: object) -> bool:
        return names in self._facts

    def __iter__(self) -> Iterator[Names]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)


def _device_s(family: str, variant: Variant, gpu: str, operations: Sequence[Operation]) -> FloatArray:
    return variant.device_s(family_named(family), OperationList(operations), find_gpu(gpu))


@dataclass(frozen=True, eq=False)
class _LazyTrees:
    """Trees of an entry, read when they are first used. A GPU needs those of its own generation only.

    Args:
        files: Files of the entry.
        name: Name of the trees.
        columns: Number of inputs that they take.
    """

    files: EntryFiles
    name: str
    columns: int

    @cached_property
    def _trees(self) -> StoredTrees:
        return stored_trees(self.files, self.name, self.columns)

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """Predict one value per row of inputs.

        Raises:
            ZooError: The trees are missing or damaged.
        """
        return self._trees(inputs)

    def to_files(self, name: str) -> dict[str, bytes]:
        """The file that they were read from, to be written unchanged into a new entry."""
        return {trees_file(name): self.files[trees_file(self.name)]}


def family_named(name: str) -> Family:
    """Find a family of kernels by its name.

    Raises:
        UnknownNameError: There is no such family.
    """
    if name not in FAMILIES:
        raise unknown_name("family of kernels in a zoo entry", name, FAMILIES)
    return FAMILIES[name]


def _write_variant(names: Names, variant: Variant) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Constants and files of a variant. Trees that were read from an entry are stored unchanged.

    Raises:
        MissingDependencyError: The converter of fitted trees is not installed.
    """
    family, power = family_named(names[0]), variant.power
    files = _trees_files(names, {**variant.generations, _OTHER_GENERATIONS: variant.other_generations})
    facts = {
        "family": names[0],
        "variant": names[1],
        "gpus": sorted(variant.gpus),
        "features": list(family.feature_names),
        "constants": {name: values.tolist() for name, values in variant.constants.items()},
        "generations": sorted(variant.generations),
        "errors": errors_to_text(variant.errors),
    }
    if power is not None:
        files |= _trees_files(names, {**power.generations, _OTHER_GENERATIONS: power.other_generations}, _POWER)
        facts["power"] = {
            "inputs": [*family.feature_names, *POWER_NAMES],
            "gpus": sorted(power.gpus),
            "generations": sorted(power.generations),
            "errors": {basis: errors_to_text(errors) for basis, errors in power.errors.items()},
        }
    return facts, files


def _read_variant(names: Names, facts: Mapping[str, Any], files: EntryFiles) -> Variant:
    """What `_write_variant` wrote.

    Raises:
        ZooError, KeyError, TypeError, ValueError: The constants or files are damaged.
    """
    family = family_named(names[0])
    require_features(facts["features"], family.feature_names, names[0])
    generations = [str(name) for name in facts["generations"]]
    constants = {name: np.array(values, dtype=float, ndmin=2) for name, values in facts["constants"].items()}
    if {ALL, *generations} - constants.keys() or any(
        values.shape != (len(family.libraries), len(family.constants)) or not (np.isfinite(values) & (values > 0)).all()
        for values in constants.values()
    ):
        raise ZooError("a zoo entry lacks constants of a family", given=names[0], hint="pull it again")
    trees, others = _read_trees(names, generations, files, len(family.feature_names))
    return Variant(
        gpus=frozenset(str(name) for name in facts["gpus"]),
        constants=constants,
        generations=trees,
        other_generations=others,
        errors={_known(name): sorted_errors(values) for name, values in facts["errors"].items()},
        power=_read_power(names, facts["power"], files) if facts.get("power") else None,
    )


def _read_power(names: Names, facts: Mapping[str, Any], files: EntryFiles) -> PowerDemand:
    inputs = [*family_named(names[0]).feature_names, *POWER_NAMES]
    require_features(facts["inputs"], inputs, f"power of {names[0]}")
    generations = [str(name) for name in facts["generations"]]
    trees, others = _read_trees(names, generations, files, len(inputs), _POWER)
    return PowerDemand(
        gpus=frozenset(str(name) for name in facts["gpus"]),
        generations=trees,
        other_generations=others,
        errors={
            _known(basis): {quantity: sorted_errors(errors[quantity]) for quantity in ("power", "energy")}
            for basis, errors in facts["errors"].items()
        },
    )


def _trees_files(names: Names, regressors: Mapping[str, Regressor], prefix: str = "") -> dict[str, bytes]:
    files = {}
    for name, regressor in regressors.items():
        # XGBoost's native form is left out: there are many regressors, and neither training nor explanations need it.
        trees = trees_file(_file(names, name, prefix))
        files[trees] = regressor.to_files(_file(names, name, prefix))[trees]
    return files


def _read_trees(
    names: Names, generations: list[str], files: EntryFiles, columns: int, prefix: str = ""
) -> tuple[dict[str, Regressor], Regressor]:
    """Read the trees of each generation, and the trees for all other generations."""
    trees: dict[str, Regressor] = {
        name: _LazyTrees(files, _file(names, name, prefix), columns) for name in [*generations, _OTHER_GENERATIONS]
    }
    return trees, trees.pop(_OTHER_GENERATIONS)


def _file(names: Names, name: str, prefix: str) -> str:
    return f"{prefix}{names[0]}-{names[1]}-{name}".replace(" ", "-")


def _known(basis: str) -> str:
    if basis not in BASES:
        raise damaged_entry("a zoo entry has errors of an unknown basis", basis, ", ".join(BASES))
    return basis
