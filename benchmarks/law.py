"""What a law is, and how it is checked: predictions that must hold against each other, whatever the predictor.

A law is checked on cases. For each case it says by what factor the prediction breaks it: the excess, which is at most 1
where the law holds, and NaN where the law says nothing about the case. `Tally` counts them. Two kinds of laws differ in
where their cases come from:

- an `OperationLaw` judges a batch of random operations on one GPU at once (laws_of_operations.py);
- a `CaseLaw` draws its own cases one at a time (laws_of_networks.py, laws_of_generation.py).

All ask the predictor through a `Subject`, so that the same laws judge any predictor.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from joulecast.arrays import FloatArray
from joulecast.hardware import GPU
from joulecast.operations.network import Network
from joulecast.predictors.networks.prediction import Prediction
from joulecast.predictors.networks.predictor import NetworkPredictor
from joulecast.predictors.predictor import OperationPredictor
from joulecast.zoo.catalogue import find_predictor

if TYPE_CHECKING:
    from laws_drawn import Batch

ROUNDING = 1e-9
"""Tolerance of laws that are exact: what the order of floating-point additions changes."""

MOST_SHARE, MOST_EXCESS = 1e-3, 1.02
"""Goals of laws that measurements contradict: at most this share of cases is broken, and by at most this factor."""

_SHOWN = 10  # Worst cases that a tally remembers.


class Case(NamedTuple):
    """A case of a law: by what factor it is broken (at most 1 where it holds), and what the case is, in words."""

    excess: float
    what: str


@dataclass(frozen=True)
class Subject:
    """The predictor that is judged.

    Args:
        predictor: Name in the zoo, folder of an entry, or model of a registry; None for the default of each GPU.
    """

    predictor: str | None = None

    def network(self, gpu: GPU, mode: str, predictor: str | None = None) -> NetworkPredictor:
        """The predictor of networks on a GPU; another than the subject's where one is named."""
        return find_predictor(gpu, mode, predictor or self.predictor)

    def operations(self, gpu: GPU, mode: str, predictor: str | None = None) -> OperationPredictor:
        """The predictor of operations on a GPU."""
        return self.network(gpu, mode, predictor).operations

    def predict(self, network: Network, gpu: GPU, clock_mhz: float | None = None) -> Prediction:
        """Predict one iteration of a network, in the network's mode."""
        return self.network(gpu, network.mode).predict(network, clock_mhz)


class OperationLaw(NamedTuple):
    """A law about operations.

    Args:
        says: The law in a sentence.
        excess: Gives the excess of each operation of a batch, shape (operations,).
        tolerance: Excess above 1 that does not count.
        exact: Whether no case may break it. If not, measurements contradict it, and it has the goals of `MOST_SHARE`.
    """

    says: str
    excess: Callable[[Batch], FloatArray]
    tolerance: float = ROUNDING
    exact: bool = True


class CaseLaw(NamedTuple):
    """A law whose cases are drawn one at a time.

    Args:
        says: The law in a sentence.
        cases: Draws cases without end, or all there are, from a source of chance and the predictor that is judged.
        share: Cases to draw for each operation that the other laws are checked on; such cases take longer.
        tolerance, exact: See `OperationLaw`.
    """

    says: str
    cases: Callable[[random.Random, Subject], Iterator[Case]]
    share: float = 0.005
    tolerance: float = ROUNDING
    exact: bool = True


Law = OperationLaw | CaseLaw


@dataclass
class Tally:
    """The cases of one law: how many were checked and broken, and the worst of them, the worst first."""

    law: Law
    cases: int = 0
    broken: int = 0
    worst: list[Case] = field(default_factory=list)

    def add(self, excess: FloatArray, what: Callable[[int], str]) -> None:
        """Count cases.

        Args:
            excess: Their excess, shape (cases,); NaN does not count.
            what: Says in words what the case at a place is. It is called for the worst alone.
        """
        self.cases += int((~np.isnan(excess)).sum())
        broken = np.flatnonzero(excess > 1 + self.law.tolerance)
        self.broken += len(broken)
        worst = broken[np.argsort(-excess[broken], kind="stable")][:_SHOWN]
        self.worst += [Case(float(excess[place]), what(place)) for place in worst.tolist()]
        self.worst = sorted(self.worst, key=lambda case: -case.excess)[:_SHOWN]

    @property
    def share(self) -> float:
        """The share of cases that break the law."""
        return self.broken / max(self.cases, 1)

    @property
    def meets_goal(self) -> bool:
        """Whether nothing breaks an exact law, or little by little one that measurements contradict."""
        if self.law.exact or not self.broken:
            return not self.broken
        return self.broken <= math.ceil(MOST_SHARE * self.cases) and self.worst[0].excess <= MOST_EXCESS


def check_cases(laws: Iterable[tuple[str, CaseLaw]], subject: Subject, most: int, seed: int) -> dict[str, Tally]:
    """Check laws that draw their own cases.

    Args:
        laws: Pairs of name and law.
        subject: The predictor that is judged.
        most: Number of operations that the other laws are checked on; see `CaseLaw.share`.
        seed: Of the source of chance; each law has one of its own.
    """
    tallies = {}
    for name, law in laws:
        tally = tallies[name] = Tally(law)
        for case in islice(law.cases(random.Random(f"{name} {seed}"), subject), max(1, int(most * law.share))):
            tally.add(np.array([case.excess]), lambda place, case=case: case.what)  # type: ignore[misc]
    return tallies


def differing(one: FloatArray, other: FloatArray) -> FloatArray:
    """Excess of a law that says that two arrays of shape (numbers, cases) are equal to the last bit, shape (cases,)."""
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.exp(np.abs(np.log(np.abs(one)) - np.log(np.abs(other))))
    ratio = np.where(np.isfinite(ratio), ratio, np.inf)
    excess: FloatArray = np.where(same, 1.0, np.maximum(ratio, 1.0 + 1e-15)).max(axis=0)
    return excess
