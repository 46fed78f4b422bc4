"""What entries of every form have: a card, and a golden prediction that is compared when they are read.

An entry is a folder with a card, a predictor, a manifest and a golden prediction: a few operations, and what they were
predicted to cost when it was made. Loading runs no code, because entries hold JSON and arrays only. Every file is
compared with its sha256 before it is parsed. Afterwards the golden prediction is made again. So neither a changed byte
nor a library that computes something else goes unnoticed.
"""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..checked import number
from ..errors import InputError, ZooError, damaged_entry
from ..operations.network import Network
from ..operations.operation import Operation
from ..predictors.networks.composition import HostModel
from ..system.resources import shipped
from .files import CARD, FACTS, MANIFEST, README, StoredEntry, json_bytes, write_files
from .rendering import markdown

if TYPE_CHECKING:
    from ..predictors.networks.on_cpu import CpuNetworkPredictor
    from ..predictors.networks.prepared import NetworkPredictor

_LONGEST_NAME = 200
_MOST_OFFSET_S = 1.0


@dataclass(frozen=True, kw_only=True)
class ModelCard:
    """What a user should know about an entry: of one GPU or CPU, for any GPU, or of kernels. It has what is not None.

    Args:
        name: "gpu/entry", as `predictor=` takes it.
        predictor: Name of its recipe's predictor.
        promise: What it predicts, in a sentence.
        splits: How its errors were found.
        data: A row for each dataset.
        errors: Statistics of relative errors on what was left out; see `Validation.rows`.
        networks: Signed relative errors on each network that was left out; see `Errors.cases`.
        coverage: How many held-out cases lay within their 90 % interval; see `Coverage`.
        gpu, mode: Of one GPU or CPU.
        precisions: Precisions that a user may ask for and in which all operations are covered.
    """

    name: str
    predictor: str
    promise: str
    recipe: Mapping[str, Any]
    splits: str
    data: tuple[Mapping[str, Any], ...]
    errors: Sequence[Mapping[str, Any]]
    networks: Sequence[Mapping[str, Any]] = ()
    coverage: Sequence[Mapping[str, Any]] = ()
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    provenance: Mapping[str, str] = field(default_factory=dict)
    gpu: str | None = None
    mode: str | None = None
    precisions: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The card as it is written."""
        return {name: value for name, value in asdict(self).items() if value is not None}


def git_commit() -> str:
    """The commit of the checkout that joulecast runs from, followed by "+" if files were changed; else "unknown"."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / "pyproject.toml").is_file():
        return "unknown"
    changes = "status --porcelain --untracked-files=no -- joulecast predictors"
    git = partial(subprocess.check_output, cwd=checkout, stderr=subprocess.DEVNULL, text=True, timeout=10)
    try:
        commit, changed = (git(["git", *words.split()]).strip() for words in ("rev-parse HEAD", changes))
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}{'+' if changed else ''}"


def card_files(card: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a card: file name -> content."""
    return {CARD: json_bytes(card), README: markdown(card).encode()}


def name_of(value: Any) -> str:
    """Check the name of an entry, as its card states it. Raises ZooError: it is not a short text."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise damaged_entry("the name in the card of this zoo entry is damaged", str(value)[:100], "a short text")
    return value


def host_of(value: Mapping[str, Any]) -> HostModel:
    """What a call costs the host, as an entry states it. Raises KeyError, TypeError, ValueError: it is damaged."""
    number(value["offset_s"], -_MOST_OFFSET_S, _MOST_OFFSET_S)
    return HostModel.from_dict(value)


_GOLDEN_OPERATIONS = 8  # Where a golden prediction covers several GPUs, per GPU.
_MOST_OPERATIONS = 64
# Sums in fp32 differ between processors: those of trees by 1e-6, and those of a transformer, whose large terms
# cancel, by up to 5e-4 (measured against fp64). A different forest differs by far more.
_TOLERANCE = 2e-3


class Content(NamedTuple):
    """What an entry holds besides its card.

    Args:
        reader: Name by which `load_any` chooses what reads it.
        facts: What the predictor needs besides arrays.
        files: Arrays and more, by name of file.
        golden: A few operations, and what they are predicted to cost.
    """

    reader: str
    facts: Mapping[str, Any]
    files: Mapping[str, bytes]
    golden: Mapping[str, Any]


def save_entry(folder: str | Path, card: ModelCard, content: Content) -> Path:
    """Write an entry. An entry that is already in the folder is replaced once the new one is complete."""
    files = {**card_files(card.to_dict()), FACTS: json_bytes(content.facts), **content.files}
    return write_files(folder, files, content.golden, predictor=content.reader)


def golden_sample(operations: Collection[Operation]) -> list[Operation]:
    """Choose at most eight operations for a golden prediction, spread evenly over those that a predictor learned from.

    The choice does not depend on the order of the operations.
    """
    listed = sorted(operations, key=lambda operation: operation.digest)
    return listed[:: max(1, len(listed) // _GOLDEN_OPERATIONS)][:_GOLDEN_OPERATIONS]


def golden_operations(values: Sequence[Mapping[str, Any]]) -> list[Operation]:
    """The operations of a golden prediction.

    Raises ZooError: there is no operation, or there are more than an entry may have. Raises InputError: one of the
    values does not describe an operation.
    """
    if not 0 < len(values) <= _MOST_OPERATIONS:
        raise damaged_entry(
            "a golden prediction has an impossible number of operations", len(values), f"1 to {_MOST_OPERATIONS}"
        )
    return [Operation.from_dict(value) for value in values]


def golden_of(operations: Iterable[Operation], predicted: Any, *columns: str) -> dict[str, Any]:
    """A golden prediction: operations, and columns of what is predicted of them."""
    costs = {name: getattr(predicted, name).tolist() for name in columns}
    return {"operations": [operation.to_dict() for operation in operations], **costs}


def smoke_test(predictor: NetworkPredictor | CpuNetworkPredictor, operations: Sequence[Operation]) -> None:
    """Predict a network of these operations with its interval, so that damage shows when an entry is loaded.

    Raises ZooError: the prediction is not finite.
    """
    prediction = predictor.predict(Network.of([(operation, 2) for operation in operations]))
    interval = prediction.interval(0.5)
    ends = (*interval.time_s, *(interval.energy_j or ())) if interval else ()
    energies = () if prediction.energy_j is None else (prediction.energy_j,)
    numbers = [prediction.time_s, *energies, *ends]
    if not all(type(number) in (float, np.float64) and np.isfinite(number) and number >= 0 for number in numbers):
        raise ZooError(
            "a zoo entry predicts times or energies that are not finite numbers",
            given=numbers[:2],
            hint="pull it again",
        )


@contextmanager
def refusing_damage(where: str) -> Iterator[None]:
    """Turn every exception that damaged content causes into a `ZooError`.

    Numbers out of range cause no warning here, because the golden prediction shows them later. Raises ZooError: the
    content is damaged.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except ZooError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        cause = error.what if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        raise damaged_entry("this zoo entry is damaged", f"{where}: {cause}"[:400]) from error


def require_agreement(stored: StoredEntry, again: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Compare a golden prediction as it comes out now with the stored one.

    Raises ZooError: they differ by more than rounding, or are not numbers.
    """
    with refusing_damage(stored.where):
        agrees = all(
            np.shape(now) == np.shape(then) and np.allclose(now, then, rtol=_TOLERANCE, atol=0)
            for now, then in [*golden_values(again, before)]  # all of them exist, before one is compared
        )
    if not agrees:
        raise ZooError(
            "this zoo entry no longer predicts what it predicted when it was made",
            given=stored.where,
            hint=f"it was made with {str(stored.manifest.get('libraries'))[:300]}; install those versions, or train it "
            "again",
        )


def golden_values(again: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Pairs of the seconds and watts of two golden predictions of one entry."""
    for name, value in again.items():
        if isinstance(value, Mapping):
            yield from golden_values(value, before[name])
        elif name != "operations":
            yield value, before[name]


@dataclass(frozen=True)
class Measured:
    """How much was measured on a GPU or CPU.

    Args:
        networks: Number of measurements of whole networks; one network at two clocks counts twice.
        clocks_mhz: Clocks that were locked; empty where everything ran at the default clock.
    """

    operations: int = 0
    networks: int = 0
    clocks_mhz: tuple[float, ...] = ()
    has_power: bool = False

    def __or__(self, other: Measured) -> Measured:
        """Combine two predictors of one GPU. They share most of their data, so the larger number counts."""
        return Measured(
            max(self.operations, other.operations),
            max(self.networks, other.networks),
            max(self.clocks_mhz, other.clocks_mhz, key=len),
            self.has_power or other.has_power,
        )

    def __add__(self, other: Measured) -> Measured:
        """Add measurements of two different datasets."""
        return Measured(
            self.operations + other.operations,
            self.networks + other.networks,
            tuple(sorted({*self.clocks_mhz, *other.clocks_mhz})),
            self.has_power or other.has_power,
        )

    def __str__(self) -> str:
        parts = []
        if self.operations:
            parts.append(f"{self.operations} operations")
        if self.networks:
            clocks = len(self.clocks_mhz)
            at = f" at {clocks} clocks" if clocks > 1 else f" at {self.clocks_mhz[0]:g} MHz" if clocks else ""
            parts.append(f"{self.networks} measurements of networks{at}")
        return ", ".join(parts) + ("" if self.has_power else " (time only)")


def measured_gpus(zoo: Path | None = None) -> Mapping[str, Measured]:
    """Full name of a GPU or CPU -> what was measured on it. Of GPUs that are not listed, only the data sheet is known.

    Raises ZooError: there is no zoo, or the card of an entry is damaged.
    """
    zoo = zoo or shipped("zoo")
    manifests = sorted(zoo.glob(f"*/*/{MANIFEST}"))
    return _measured(tuple((path.parent, path.stat().st_mtime_ns) for path in manifests))


@lru_cache(maxsize=4)
def _measured(stamped: tuple[tuple[Path, int], ...]) -> Mapping[str, Measured]:
    by_gpu: dict[str, Measured] = {}
    for folder, _ in stamped:
        of_entry: dict[str, Measured] = {}
        for data in StoredEntry.of(folder).card["data"]:
            # Kernels were measured one by one, at the default clock.
            clocks = () if data["clock_mhz"] is None else (float(data["clock_mhz"]),)
            measured = Measured(data["operations"], data["networks"], clocks, not data["sensor"].startswith("none"))
            of_entry[data["gpu"]] = of_entry.get(data["gpu"], Measured()) + measured
        for gpu, measured in of_entry.items():
            by_gpu[gpu] = by_gpu.get(gpu, Measured()) | measured
    return by_gpu
