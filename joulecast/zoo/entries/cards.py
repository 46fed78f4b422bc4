"""Cards of entries: what users should know about a predictor and its data, and values that predictions depend on."""

from __future__ import annotations

import datetime
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import ZooError
from ...predictors.formats.numbers import number
from ...predictors.networks.composition import MOST_NETWORK_STATIC_W, TF32_FACTORS, HostModel
from ...system.resources import shipped
from ..rendering import markdown
from .files import CARD, MANIFEST, README, StoredEntry, json_bytes

_LONGEST_NAME = 200
_MOST_OFFSET_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Card:
    """What every card says.

    Args:
        name: "gpu/entry", as `predictor=` takes it.
        splits: How the errors of the card were found.
    """

    name: str
    recipe: Mapping[str, Any]
    splits: str
    limits: tuple[str, ...] = ()
    created: str = ""
    licence: str = "Apache-2.0"
    provenance: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelCard(Card):
    """What a user should know about a predictor of one GPU or CPU.

    Args:
        precisions: Precisions that a user may ask for and in which all operations are covered.
        operation_errors: Campaign -> summary, from cross-validation.
        network_errors: Network -> relative errors of time and energy when left out.
        composition: The default composition, "overlap" or "sum".
        coverage: For each split, how many held-out cases lay within their 90 % interval.
        kind_errors: Campaign -> kind -> count, median and mean error of time and of power, from cross-validation.
    """

    gpu: str
    mode: str
    precisions: tuple[str, ...]
    predictor: str
    data: Mapping[str, Any]
    operation_errors: Mapping[str, Mapping[str, float]]
    network_errors: Mapping[str, Mapping[str, float]]
    host: Mapping[str, Any]
    composition: str
    coverage: tuple[Mapping[str, Any], ...] = ()
    kind_errors: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AnyGpuCard(Card):
    """What a user should know about a predictor for any GPU.

    Args:
        operation_errors: Split ("folds", "gpu left out") -> GPU -> kind and mode -> median and mean error of device
            time.
        network_errors: What was known of the chip ("nothing", or other "networks" on it) -> network -> relative errors
            of time, energy and power. Operations measured on the chip were left out in both cases.
        log_errors: Mode -> quantity -> sorted absolute log errors on networks, for intervals.
        device_errors: Family -> sorted absolute log errors of device time on chips that were left out, for intervals of
            operations; "" stands for all families.
        power_errors: "power" and "energy" -> family -> the same, for loops that are bound by the GPU; empty where power
            was measured on too few chips.
    """

    predictor: str
    data: tuple[Mapping[str, Any], ...]
    operation_errors: Mapping[str, Mapping[str, Mapping[str, tuple[float, float]]]]
    network_errors: Mapping[str, Mapping[str, Mapping[str, float]]]
    host: Mapping[str, Mapping[str, Any]]
    log_errors: Mapping[str, Mapping[str, tuple[float, ...]]]
    device_errors: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    power_errors: Mapping[str, Mapping[str, tuple[float, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class KernelsCard(Card):
    """What a user should know about the entry of device times of kernels.

    Args:
        kernels: Part of the model -> the GPUs that it was measured on.
        errors: Part -> basis and GPU -> number of operations, median and mean absolute error.
        coverage: Part -> basis -> share of left-out operations within their 90 % interval.
        network_factors: How much longer operations take inside measured networks than alone: field -> value.
        network_errors: Basis -> quantity -> sorted absolute log errors on measured networks that were left out.
    """

    kernels: Mapping[str, tuple[str, ...]]
    data: tuple[Mapping[str, Any], ...]
    errors: Mapping[str, Mapping[str, tuple[int, float, float]]]
    coverage: Mapping[str, Mapping[str, float]]
    power_errors: Mapping[str, Mapping[str, tuple[int, float, float]]] = field(default_factory=dict)
    network_factors: Mapping[str, Any] = field(default_factory=dict)
    network_errors: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)


def made_now() -> dict[str, Any]:
    """What a card says of when and from what its entry is made: today, and the commit of the checkout."""
    return {
        "created": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "provenance": {"git_commit": git_commit()},
    }


def git_commit() -> str:
    """The commit of the checkout that joulecast runs from, followed by "+" if files were changed; else "unknown"."""
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / "pyproject.toml").is_file():
        return "unknown"
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no", "--", "joulecast", "predictors")
    return f"{commit}{'+' if changed else ''}" if commit else "unknown"


def _git(folder: Path, *arguments: str) -> str:
    try:
        result = subprocess.run(  # noqa: S603
            ["git", *arguments],  # noqa: S607
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


def card_files(card: Card | Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a card: file name -> content."""
    known = asdict(card) if isinstance(card, Card) else card
    return {CARD: json_bytes(known), README: markdown(known).encode()}


def name_of(value: Any) -> str:
    """Check the name of an entry, as its card states it. Raises ZooError: it is not a short text."""
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST_NAME or not value.isprintable():
        raise _damaged("name", value, "a short text")
    return value


def host_of(value: Mapping[str, Any]) -> HostModel:
    """Host costs of a call inside a network, as a card states them.

    Raises ZooError, KeyError, TypeError: the value is not such a host cost, or is out of range.
    """
    offset = value["offset_s"]
    if type(offset) not in (int, float) or not abs(offset) <= _MOST_OFFSET_S:
        raise _damaged("offset_s", offset, f"within {_MOST_OFFSET_S:g} s")
    return HostModel.from_dict(value)


def network_static_of(facts: Mapping[str, Any]) -> float:
    """Watts in networks in addition to static power, as the facts of an entry state them."""
    return _learned(facts, "network_static_w", 0.0, (0.0, MOST_NETWORK_STATIC_W))


def network_tf32_of(facts: Mapping[str, Any]) -> float:
    """Cost of operations in TF32 inside networks over that in loops, as the facts of an entry state it."""
    return _learned(facts, "network_tf32_factor", 1.0, TF32_FACTORS)


def _learned(facts: Mapping[str, Any], name: str, otherwise: float, low_high: tuple[float, float]) -> float:
    """What networks taught. Entries of GPUs without measured networks may lack the value; they learned none.

    Raises ZooError, TypeError: the value is not such a number.
    """
    value, (least, most) = number(facts.get(name, otherwise)), low_high
    if not least <= value <= most:
        raise _damaged(name, value, f"from {least:g} to {most:g}")
    return value


def _damaged(what: str, given: object, allowed: str) -> ZooError:
    return ZooError(
        f"{what} in the card of this zoo entry is damaged",
        given=str(given)[:100],
        allowed=allowed,
        hint="pull it again",
    )


_NO_SENSOR = "none"


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
    found: dict[str, Measured] = {}
    for folder, _ in stamped:
        of_entry: dict[str, Measured] = {}
        for gpu, measured in _of_card(StoredEntry.of(folder).card):
            of_entry[gpu] = of_entry.get(gpu, Measured()) + measured
        for gpu, measured in of_entry.items():
            found[gpu] = found.get(gpu, Measured()) | measured
    return found


def _of_card(card: Mapping[str, Any]) -> Iterator[tuple[str, Measured]]:
    if isinstance(card["data"], Mapping):  # a predictor of one GPU or CPU
        operations = int(card["data"].get("unique_operations", 0))
        has_power = not card["data"].get("sensor", "").startswith(_NO_SENSOR)
        yield card["gpu"], Measured(operations, len(card["network_errors"]), has_power=has_power)
        return
    for data in card["data"]:
        # Cards of kernels have no clocks and networks: kernels were measured one by one, at the default clock.
        clocks = () if data.get("clock_mhz") is None else (float(data["clock_mhz"]),)
        has_power = data.get("sensor", _NO_SENSOR) != _NO_SENSOR
        yield data["gpu"], Measured(data["operations"], data.get("networks", 0), clocks, has_power)
