"""The zoo entry of device times of kernels: what predictors for any GPU ask in half precision and below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import FloatArray
from ...errors import ZooError, unknown_name
from ...hardware import find_gpu
from ...operations.operation import Operation
from ...operations.operation_list import OperationList
from ...predictors.formats.numbers import errors_to_text, sorted_errors
from ...predictors.kernels.families import FAMILIES
from ...predictors.kernels.family import Family
from ...predictors.kernels.learned import ALL, BASES, Kernels, Variant
from ...predictors.regressors.serving import StoredTrees, stored_trees
from ...predictors.regressors.trees import trees_file
from ..rendering import markdown
from .card_values import name_of
from .files import EntryFiles, checked_files, json_bytes, parsed_json, write_files
from .golden import golden_operations, refusing_damage, require_agreement

PREDICTOR = "kernels"
_FILES = ("card.json", "predictor.json")
_MOST_VARIANTS = 64
_ELSEWHERE = "elsewhere"

Names = tuple[str, str]
Golden = Mapping[Names, tuple[str, Sequence[Operation]]]
"""Family and variant -> a GPU, and operations that are predicted on it."""


@dataclass(frozen=True)
class KernelsCard:
    """What a user should know about device times of kernels.

    Args:
        name: Name of the entry.
        kernels: Family and variant -> the GPUs that it was measured on.
        recipe: Its settings.
        data: What it was trained on: one description per dataset.
        splits: How the errors below were found.
        errors: Family and variant -> basis and GPU -> number of operations, median and mean absolute error.
        coverage: Family and variant -> basis -> share of left-out operations within their 90 % interval.
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
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class KernelsEntry:
    """A loaded entry.

    Args:
        name: Name of the entry.
        kernels: What it knows; each variant is read and checked when it is first asked for.
    """

    name: str
    kernels: Kernels

    def check(self) -> None:
        """Read every variant.

        Raises:
            ZooError: One is damaged, or predicts otherwise than when it was made.
        """
        for names in self.kernels.variants:
            self.kernels.variants[names]


def save_kernels(folder: str | Path, kernels: Kernels, card: KernelsCard, golden: Golden) -> Path:
    """Write the entry; what lay in its place is replaced once the new one is whole.

    Args:
        folder: Where, such as zoo/any-gpu/kernels.
        kernels: What was just fitted.
        card: Its card.
        golden: Operations of the golden prediction.
    """
    files: dict[str, bytes] = {}
    facts = []
    for (family, variant), learned in sorted(kernels.variants.items()):
        regressors = {**learned.generations, _ELSEWHERE: learned.elsewhere}
        for name, regressor in regressors.items():
            # The native form is left out: there are many regressors, and nothing trains on from one or explains it.
            trees = trees_file(_file(family, variant, name))
            files[trees] = regressor.to_files(_file(family, variant, name))[trees]
        facts.append(
            {
                "family": family,
                "variant": variant,
                "gpus": sorted(learned.gpus),
                "features": list(FAMILIES[family].feature_names),
                "constants": {name: values.tolist() for name, values in learned.constants.items()},
                "generations": sorted(learned.generations),
                "errors": errors_to_text(learned.errors),
            }
        )
    everything = {
        "card.json": json_bytes(asdict(card)),
        "README.md": markdown(asdict(card)).encode(),
        "predictor.json": json_bytes({"variants": facts}),
        **files,
    }
    shown = [
        {
            "family": family,
            "variant": variant,
            "gpu": gpu,
            "operations": [operation.to_json() for operation in operations],
            "device_s": _device_s(family, kernels.variants[family, variant], gpu, operations).tolist(),
        }
        for (family, variant), (gpu, operations) in sorted(golden.items())
    ]
    return write_files(folder, everything, {"variants": shown}, predictor=PREDICTOR)


def load_kernels(folder: str | Path) -> KernelsEntry:
    """Load the entry; its variants are checked when they are first asked for.

    Raises:
        ZooError: Missing, damaged, changed, or of another format.
    """
    folder = Path(folder)
    manifest, files = checked_files(folder, _FILES)
    with refusing_damage(folder):
        name = name_of(parsed_json(files["card.json"], "the card of this zoo entry")["name"])
        facts = parsed_json(files["predictor.json"], "the predictor of this zoo entry")["variants"]
        if not 0 < len(facts) <= _MOST_VARIANTS:
            raise ZooError("a zoo entry has a number of variants that cannot be", given=len(facts))
        by_name = {(str(fact["family"]), str(fact["variant"])): fact for fact in facts}
        return KernelsEntry(name, Kernels(_StoredVariants(folder, manifest, files, by_name)))


def checked_kernels(folder: Path) -> KernelsEntry:
    """Load the entry and check all of it.

    Raises:
        ZooError: See `load_kernels` and `KernelsEntry.check`.
    """
    entry = load_kernels(folder)
    entry.check()
    return entry


class _StoredVariants(Mapping[Names, Variant]):
    """Variants of an entry, each read when it is first asked for: a prediction needs one or two."""

    def __init__(
        self, folder: Path, manifest: Mapping[str, Any], files: EntryFiles, facts: Mapping[Names, Any]
    ) -> None:
        self._folder, self._manifest, self._files, self._facts = folder, manifest, files, facts
        self._read: dict[Names, Variant] = {}

    def __getitem__(self, names: Names) -> Variant:
        """The variant.

        Raises:
            ZooError: It is damaged, or predicts otherwise than when it was made.
        """
        if names not in self._read:
            with refusing_damage(self._folder):
                variant = self._variant(names)
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

    def _variant(self, names: Names) -> Variant:
        family, fact = _family(names[0]), self._facts[names]
        if fact["features"] != list(family.feature_names):
            raise ZooError("this zoo entry was trained on other features", hint="train it again")
        generations = [str(name) for name in fact["generations"]]
        constants = {name: np.array(values, dtype=float) for name, values in fact["constants"].items()}
        if {ALL, *generations} - constants.keys() or any(
            values.shape != (len(family.constants),) or not (np.isfinite(values) & (values > 0)).all()
            for values in constants.values()
        ):
            raise ZooError("a zoo entry lacks constants of a family", given=names[0], hint="pull it again")
        errors = {name: sorted_errors(values) for name, values in fact["errors"].items()}
        if errors.keys() - set(BASES):
            raise ZooError("a zoo entry has errors of another basis", given=", ".join(errors), allowed=", ".join(BASES))
        return Variant(
            gpus=frozenset(str(name) for name in fact["gpus"]),
            constants=constants,
            generations={name: _LazyTrees(self._files, _file(*names, name), family) for name in generations},
            elsewhere=_LazyTrees(self._files, _file(*names, _ELSEWHERE), family),
            errors=errors,
        )


@dataclass(frozen=True, eq=False)
class _LazyTrees:
    """Trees of an entry that are read when they are first asked: one GPU needs those of one generation."""

    files: EntryFiles
    name: str
    family: Family

    @cached_property
    def _trees(self) -> StoredTrees:
        return stored_trees(self.files, self.name, len(self.family.feature_names))

    def __call__(self, inputs: NDArray[np.float32]) -> FloatArray:
        """One value per row of inputs.

        Raises:
            ZooError: They are missing or damaged.
        """
        return self._trees(inputs)

    def to_files(self, name: str) -> dict[str, bytes]:
        """See `StoredTrees.to_files`.

        Raises:
            ZooError: Always.
        """
        return self._trees.to_files(name)


def _family(name: str) -> Family:
    if name not in FAMILIES:
        raise unknown_name("family of kernels in a zoo entry", name, FAMILIES)
    return FAMILIES[name]


def _file(family: str, variant: str, name: str) -> str:
    return f"{family}-{variant}-{name}".replace(" ", "-")


def _device_s(family: str, variant: Variant, gpu: str, operations: Sequence[Operation]) -> FloatArray:
    return variant.device_s(_family(family), OperationList(operations), find_gpu(gpu))
