"""Cards of entries: what users should know of a predictor; and what was measured on each GPU, as all cards say."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ..system.resources import shipped
from .files import CARD, MANIFEST, README, StoredEntry, json_bytes
from .rendering import markdown


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


class Measured(NamedTuple):
    """How much was measured on a GPU or CPU.

    Args:
        networks: Number of measurements of whole networks; one network at two clocks counts twice.
        clocks_mhz: Clocks that were locked; empty where everything ran at the default clock.
    """

    operations: int
    networks: int
    clocks_mhz: tuple[float, ...]
    has_power: bool

    def __str__(self) -> str:
        parts = []
        if self.operations:
            parts.append(f"{self.operations:,} operations")
        if self.networks:
            clocks = len(self.clocks_mhz)
            at = f" at {clocks} clocks" if clocks > 1 else f" at {self.clocks_mhz[0]:g} MHz" if clocks else ""
            parts.append(f"{self.networks} measurements of networks{at}")
        return ", ".join(parts) + ("" if self.has_power else " (time only)")


def measured_gpus() -> Mapping[str, Measured]:
    """Full name of a GPU or CPU -> what was measured on it. Of GPUs that are not listed, only the data sheet is known.

    Raises ZooError: there is no zoo, or the card of an entry is damaged.
    """
    manifests = sorted(shipped("zoo").glob(f"*/*/{MANIFEST}"))
    return _measured(tuple((path.parent, path.stat().st_mtime_ns) for path in manifests))


@lru_cache(maxsize=4)
def _measured(stamped: tuple[tuple[Path, int], ...]) -> Mapping[str, Measured]:
    by_gpu: dict[str, list[Measured]] = {}
    for folder, _ in stamped:
        card = StoredEntry.of(folder).card
        for gpu in {data["gpu"]: None for data in card["data"]}:
            mine = [data for data in card["data"] if data["gpu"] == gpu]
            operations, networks = (sum(data[what] for data in mine) for what in ("operations", "networks"))
            clocks = {float(data["clock_mhz"]) for data in mine if data["clock_mhz"] is not None}
            has_power = any(not data["sensor"].startswith("none") for data in mine)
            by_gpu.setdefault(gpu, []).append(Measured(operations, networks, tuple(sorted(clocks)), has_power))
    most = {}
    for gpu, found in by_gpu.items():
        operations, networks, locked, powers = zip(*found, strict=True)
        # Predictors of one GPU share most of their data, so the largest numbers count.
        most[gpu] = Measured(max(operations), max(networks), max(locked, key=len), any(powers))
    return most
