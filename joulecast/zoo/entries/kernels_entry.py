"""The zoo entry of device times of kernels, which predictors for any GPU use in half precision and below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ...arrays import FloatArray
from ...errors import ZooError, damaged_entry
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...predictors.formats.numbers import sorted_errors
from ...predictors.intervals.network_calibration import NETWORK_QUANTITIES
from ...predictors.kernels.family import Names
from ...predictors.kernels.in_networks import NetworkFactors
from ...predictors.kernels.learned import NETWORK_BASES, Kernels, NetworkBasis
from ...predictors.kernels.variant import Variant
from .card_values import name_of
from .common_files import NEEDED, common_files, read_card, read_facts
from .files import EntryFiles, checked_files, write_files
from .golden import golden_operations, refusing_damage, require_agreement
from .kernels_files import family_named, read_variant, write_variant

PREDICTOR = "kernels"
_MOST_VARIANTS = 64
_MOST_FACTOR = 3.0
_MOST_CYCLES = 3.0

Golden = Mapping[Names, tuple[str, Sequence[Operation]]]
"""Family and variant -> a GPU, and operations that are predicted on it."""


@dataclass(frozen=True)
class KernelsCard:
    """What a user should know about the entry of device times of kernels.

    Args:
        name: Name of the entry.
        kernels: Family and variant -> the GPUs that it was measured on.
        recipe: Settings of the recipe.
        data: What it was trained on: one description per dataset.
        splits: How the errors below were found.
        errors: Family and variant -> basis and GPU -> number of operations, median and mean absolute error.
        coverage: Family and variant -> basis -> share of left-out operations within their 90 % interval.
        power_errors: Family and variant -> basis and GPU -> number of operations, median and mean absolute error.
        network_factors: How much longer operations take inside measured networks than alone: field -> value.
        network_errors: Basis -> quantity -> sorted absolute log errors on measured networks that were left out.
        limits: What it cannot do.
        created: Date.
        licence: Licence of the entry.
        provenance: The commit that it was trained at.
    """

    name: str
    kernels: Mapping[str, tuple[str, ...]]
    recipe: Mapping[str, Any]
    data: tuple[Mapping[str, Any], ...]
    splits: str
    errors: Mapping[str, Mapping[str, tuple[int, float, float]]]
    coverage: Mapping[str, Mapping[str, float]]
    power_errors: Mapping[str, Mapping[str, tuple[int, float, float]]] = field(default_factory=dict)
    network_factors: Mapping[str, Any] = field(default_factory=dict)
    network_errors: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    provenance: Mapping[str, str] = field(default_factory=dict)


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
    """Write the entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        folder: Folder to write, such as zoo/any-gpu/kernels.
        kernels: The fitted families and variants.
        card: Card of the entry.
        golden: Operations of the golden prediction.
    """
    files: dict[str, bytes] = {}
    facts = []
    for (family, variant), learned in sorted(kernels.variants.items()):
        of_variant, stored = write_variant((family, variant), learned)
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
    return write_files(folder, common_files(asdict(card), predictor) | files, {"variants": shown}, predictor=PREDICTOR)


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
    folder = Path(folder)
    manifest, files = checked_files(folder, NEEDED)
    with refusing_damage(folder):
        card = read_card(files)
        predictor = read_facts(files)
        facts = predictor["variants"]
        factors = _network_factors(predictor.get("in_networks", {}))
        if not 0 < len(facts) <= _MOST_VARIANTS:
            raise damaged_entry(
                "a zoo entry has an impossible number of variants", len(facts), f"1 to {_MOST_VARIANTS}"
            )
        by_name = {(str(fact["family"]), str(fact["variant"])): fact for fact in facts}
        golden = {
            (row["family"], row["variant"]): (str(row["gpu"]), golden_operations(row["operations"]))
            for row in manifest["golden"]["variants"]
        }
        variants = _StoredVariants(folder, manifest, files, by_name)
        kernels = Kernels(variants, factors, _network_errors(predictor.get("network_errors", {})))
        return KernelsEntry(name_of(card["name"]), kernels, golden, card)


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


def checked_kernels(folder: Path) -> KernelsEntry:
    """Load the entry and check all of it.

    Raises:
        ZooError: See `load_kernels` and `KernelsEntry.check`.
    """
    entry = load_kernels(folder)
    entry.check()
    return entry


class _StoredVariants(Mapping[Names, Variant]):
    """Variants of an entry, each read when it is first needed. A prediction needs one or two of them."""

    def __init__(
        self, folder: Path, manifest: Mapping[str, Any], files: EntryFiles, facts: Mapping[Names, Any]
    ) -> None:
        self._folder, self._manifest, self._files, self._facts = folder, manifest, files, facts
        self._read: dict[Names, Variant] = {}

    def __getitem__(self, names: Names) -> Variant:
        """The variant.

        Raises:
            ZooError: The variant is damaged, or its golden prediction comes out differently.
        """
        if names not in self._read:
            with refusing_damage(self._folder):
                variant = read_variant(names, self._facts[names], self._files)
                shown = [
                    row for row in self._manifest["golden"]["variants"] if (row["family"], row["variant"]) == names
                ]
                pairs = [
                    (_device_s(names[0], variant, row["gpu"], golden_operations(row["operations"])), row["device_s"])
                    for row in shown
                ]
            require_agreement(self._folder, self._manifest, pairs)
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
