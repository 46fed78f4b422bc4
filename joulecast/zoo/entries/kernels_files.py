"""How variants of kernels are stored: their constants as JSON, and each of their tree models in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry, unknown_name
from ...predictors.contract import Regressor
from ...predictors.formats.numbers import errors_to_text, require_features, sorted_errors
from ...predictors.kernels.basis import BASES
from ...predictors.kernels.families import FAMILIES
from ...predictors.kernels.family import Family, Names
from ...predictors.kernels.power import POWER_NAMES, PowerDemand
from ...predictors.kernels.variant import ALL, Variant
from ...predictors.regressors.serving import StoredTrees, stored_trees
from ...predictors.regressors.trees import trees_file
from .files import EntryFiles

_OTHER_GENERATIONS = "other-generations"
_POWER = "power-"


@dataclass(frozen=True, eq=False)
class LazyTrees:
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


def write_variant(names: Names, variant: Variant) -> tuple[dict[str, Any], dict[str, bytes]]:
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


def read_variant(names: Names, facts: Mapping[str, Any], files: EntryFiles) -> Variant:
    """What `write_variant` wrote.

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
        name: LazyTrees(files, _file(names, name, prefix), columns) for name in [*generations, _OTHER_GENERATIONS]
    }
    return trees, trees.pop(_OTHER_GENERATIONS)


def _file(names: Names, name: str, prefix: str) -> str:
    return f"{prefix}{names[0]}-{names[1]}-{name}".replace(" ", "-")


def _known(basis: str) -> str:
    if basis not in BASES:
        raise damaged_entry("a zoo entry has errors of an unknown basis", basis, ", ".join(BASES))
    return basis
