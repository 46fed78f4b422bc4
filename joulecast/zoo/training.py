"""What training takes and gives: datasets and a recipe, and what an entry is made of. trainers.py says how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from ..datasets import Dataset, NetworkMeasurement, fingerprint, load
from ..extraction import network_of
from ..hardware import find_device, find_gpu
from ..operations.network import Network
from ..operations.operation import MODES
from ..predictors.contract import Networks
from ..predictors.evaluation.errors import Validation
from ..predictors.fitting.forms import predictor_of
from ..predictors.intervals.network_calibration import NetworkCalibration
from ..predictors.recipes import Recipe
from .cards import ModelCard, git_commit
from .catalogue import entry_name
from .entry import save_entry
from .golden import Sample


@dataclass(frozen=True)
class Loaded:
    """A dataset, the folder that it was loaded from, and the operations of its networks."""

    folder: Path
    dataset: Dataset
    networks: Mapping[NetworkMeasurement, Network] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Load a dataset, and extract the operations of networks where it does not list them."""
        dataset = load(folder)
        networks = {
            m: m.operations or network_of(m.network, m.input_shape, mode=m.mode, precision=m.precision)
            for mode in MODES
            for m in dataset.usable_networks(mode)
        }
        return cls(folder, dataset, networks)

    def described(self) -> dict[str, Any]:
        """What cards say of it."""
        said = ("gpu", "clock_mhz", "source", "licence", "sensor")
        return {
            **{name: getattr(self.dataset.card, name) for name in said},
            "operations": len({m.operation for m in self.dataset.measurements}),
            "networks": len(self.dataset.networks),
            "sha256": fingerprint(self.folder),
        }


def all_networks(loaded: Sequence[Loaded]) -> Networks:
    """The networks of all datasets that were measured with their power."""
    return [
        (find_gpu(each.dataset.card.gpu), m, network)
        for each in loaded
        for m, network in each.networks.items()
        if m.energy_j is not None
    ]


class Task(NamedTuple):
    """What is trained at once.

    Args:
        loaded: Datasets: a single one for a predictor of one GPU or CPU.
        recipe: Recipe of the predictor.
        mode: Mode of the predictor of one GPU or CPU; empty for all others, which predict both modes.
        quick: Whether a predictor for any GPU is tested on one fold and a few chips only, see `validate_any_gpu`.
        borrowed: Errors on another GPU's networks, in units of difficulty, for a GPU on which no network was measured.
    """

    loaded: Sequence[Loaded]
    recipe: Any
    mode: str = ""
    quick: bool = False
    borrowed: NetworkCalibration | None = None

    @property
    def data(self) -> list[Dataset]:
        """The datasets alone."""
        return [each.dataset for each in self.loaded]

    @property
    def of_mode(self) -> tuple[Dataset, str, Any, dict[NetworkMeasurement, Network]]:
        """Of a predictor of one GPU or CPU: dataset, mode, recipe, and networks of this mode."""
        (loaded,) = self.loaded
        networks = {m: network for m, network in loaded.networks.items() if m.mode == self.mode}
        return loaded.dataset, self.mode, self.recipe, networks

    @property
    def name(self) -> str:
        """Name of the entry."""
        word = self.recipe.entry or predictor_of(self.recipe)
        return entry_name(find_device(self.data[0].card.gpu), word, self.mode) if self.mode else f"any-gpu/{word}"


@dataclass(frozen=True)
class Trained:
    """What was trained, with its validation and card, ready to be stored.

    Args:
        predictor: A predictor of this kind.
        samples: Operations for the golden prediction.
        files: Further files of its entry, by name.
        kind: What its manifest names as its predictor; empty for what the card names.
    """

    predictor: Any
    validation: Validation
    card: ModelCard
    samples: Sequence[Sample]
    files: Mapping[str, bytes] = field(default_factory=dict)
    kind: str = ""

    def save(self, zoo: Path) -> Path:
        """Write the entry into a zoo folder."""
        folder = zoo / self.card.name
        return save_entry(folder, self.card, self.predictor, self.samples, self.files, kind=self.kind)


def card_of(name: str, predictor: str, recipe: Recipe, validation: Validation, **more: Any) -> ModelCard:
    """The card of an entry, with the errors of its validation."""
    return ModelCard(
        name=name,
        predictor=predictor,
        recipe=recipe.to_dict(),
        errors=validation.rows(),
        networks=validation.networks.cases(),
        coverage=[asdict(row) for row in validation.coverage if not row.group.startswith(("family", "host", "GPU"))],
        created=datetime.now(UTC).date().isoformat(),
        provenance={"git_commit": git_commit()},
        **more,
    )
