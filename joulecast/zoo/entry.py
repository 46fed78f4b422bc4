"""Entries: read and checked, saved, described.

An entry is a folder with a card, a predictor, a manifest and golden samples (golden.py). Loading runs no code, because
entries hold JSON and arrays only. Every file is compared with its sha256 before it is parsed (files.py). What is
particular to a kind of predictor is a row of one table (kinds.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import ZooError
from ..operations.operation import Operation
from ..predictors.formats.numbers import refusing_damage
from ..predictors.networks.predictor import NetworkPredictor
from .cards import ModelCard, card_files
from .files import FACTS, OPERATIONS, StoredEntry, json_bytes, parsed_json, write_files
from .golden import Columns, Sample, golden_of, require_agreement, samples_of, smoke_test
from .kinds import KERNELS_PREDICTOR, KINDS, Kind, kind_of

if TYPE_CHECKING:
    from ..predictors.model.learned import OneModel
    from ..predictors.networks.on_cpu import CpuNetworkPredictor

Form = TypeVar("Form")


@dataclass(frozen=True, eq=False)
class Entry:
    """An entry that was read, without its golden samples being compared.

    Args:
        predictor: What `Kind.read` gives.
    """

    stored: StoredEntry
    kind: Kind
    predictor: Any

    @classmethod
    def of(cls, folder: str | Path) -> Self:
        """Read the entry in a folder.

        Raises ZooError: missing, damaged, changed, of another format, or of a predictor that this joulecast does not
        know.
        """
        stored = StoredEntry.of(folder)
        kind = kind_of(stored.predictor)
        with refusing_damage(stored.where):
            return cls(stored, kind, kind.read(stored))

    @cached_property
    def samples(self) -> list[tuple[Sample, Columns]]:
        """The golden samples, and what was predicted of them. Raises ZooError: they are damaged."""
        with refusing_damage(self.stored.where):
            return samples_of(self.stored.golden)

    def on(self, gpu: str, mode: str) -> NetworkPredictor | CpuNetworkPredictor:
        """The predictor of networks on a GPU in a mode; entries of one device ignore both.

        Raises ZooError: the entry predicts no networks.
        """
        if self.kind.on is None:
            raise not_by_itself(self.stored.card["name"])
        return self.kind.on(self.predictor, gpu, mode)

    def golden(self) -> dict[str, Any]:
        """The golden samples as they are predicted now, in the form of manifests. Raises ZooError: they are damaged."""
        with refusing_damage(self.stored.where):
            return golden_of([sample for sample, _ in self.samples], partial(self.kind.golden, self.predictor))

    def compare(self, sample: Sample, before: Columns) -> None:
        """Compare a golden sample with what is predicted now. Raises ZooError: they differ, or are damaged."""
        with refusing_damage(self.stored.where):
            if self.kind.on is not None:
                smoke_test(self.kind.on(self.predictor, sample.gpu, sample.operations[0].mode), sample.operations)
            again = self.kind.golden(self.predictor, sample)
        require_agreement(self.stored, again, before)

    def check(self) -> None:
        """Compare all golden samples. Raises ZooError: one differs, or something is damaged."""
        for sample, before in self.samples:
            self.compare(sample, before)


def not_by_itself(name: str) -> ZooError:
    """Build the error for a user who asks device times of kernels for a prediction."""
    return ZooError(
        "device times of kernels are used by other predictors, and predict nothing by themselves",
        given=name,
        allowed="the name of another entry, such as any-gpu/forest",
    )


def load_any(folder: str | Path) -> Any:
    """Load the predictor of an entry of any kind, and check it.

    Raises ZooError: as for `Entry.of`; or a golden sample comes out differently.
    """
    entry = Entry.of(folder)
    entry.check()
    return entry.predictor


def load_entry(folder: str | Path, form: type[Form] = NetworkPredictor) -> Form:  # type: ignore[assignment]
    """Load the predictor of an entry of one kind, and check it. Raises ZooError: as for `load_any`, or it is another.

    Args:
        form: Class of the predictor: by default that of one GPU.
    """
    loaded = load_any(folder)
    if not isinstance(loaded, form):
        raise ZooError(
            "this zoo entry is of another form",
            given=f"{folder}: {type(loaded).__name__}",
            allowed=form.__name__,
            hint="`joulecast zoo show` describes an entry",
        )
    return loaded


def load_kernels(folder: str | Path) -> OneModel:
    """Load device times of kernels. Their trees are read, and their golden samples compared, when they are first used.

    Raises ZooError: the entry is missing, damaged, changed, of another format, or holds something else.
    """
    from ..predictors.regressors.trees import StoredTrees

    stored, kind = StoredEntry.of(folder), KINDS[KERNELS_PREDICTOR]
    with refusing_damage(stored.where):
        model: OneModel = kind.read(stored)
        entry = Entry(stored, kind, model)
        for sample, before in entry.samples:
            trees = None if sample.trees is None else model.trees.get(sample.trees)
            if isinstance(trees, StoredTrees):
                trees.check = partial(entry.compare, sample, before)
    return model


def save_entry(
    folder: str | Path,
    card: ModelCard,
    predictor: Any,
    samples: Sequence[Sample],
    files: Mapping[str, bytes] = MappingProxyType({}),
    *,
    kind: str = "",
) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete.

    Args:
        card: What users should know about it.
        predictor: A predictor of this kind.
        samples: Operations for the golden prediction.
        files: Further files, by name.
        kind: What the manifest names as the predictor; empty for what the card names.
    """
    written = kind_of(kind or card.predictor)
    facts, arrays = written.write(predictor)
    everything = {**card_files(card.to_dict()), FACTS: json_bytes(facts), **files, **arrays}
    golden = golden_of(samples, partial(written.golden, predictor))
    return write_files(folder, everything, golden, predictor=kind or card.predictor)


@dataclass(frozen=True)
class Background:
    """What explanations need besides the predictor.

    Args:
        operations: Operations that it was trained on; empty where they are not stored.
        native: "time" and "power" -> boosted trees as XGBoost stores them; empty for other recipes.
    """

    operations: tuple[Operation, ...]
    native: Mapping[str, bytes]


def load_background(folder: Path) -> Background:
    """Read what explanations of an entry's predictions need. Raises ZooError: the entry is damaged."""
    files = StoredEntry.of(folder)
    with refusing_damage(str(folder)):
        stored = parsed_json(files[OPERATIONS], "the operations of this zoo entry") if OPERATIONS in files else []
        operations = tuple(Operation.from_dict(value) for value in stored)
        names = ("time", "power")
        whole = all(f"{name}.ubj" in files for name in names)
        return Background(operations, {name: files[f"{name}.ubj"] for name in names} if whole else {})
