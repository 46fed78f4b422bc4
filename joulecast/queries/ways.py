"""What all searches of ways have in common: the ways within limits, the best of each GPU, and why others are not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from ..arrays import front_of
from ..errors import InputError, JoulecastError, unknown_name
from ..rendering.answers import Answer, Table
from ..rendering.described import Column, Description, listing
from ..rendering.pictures import Picture, front_picture
from .choice import reason_lines
from .objectives import Tariff, refuse_without

_NAMED = 5
"""Most GPUs that an error names."""


class Way(Protocol):
    """One way to do something."""

    @property
    def boards(self) -> str:
        """The GPUs with their number, such as "2x NVIDIA H200"."""

    def to_dict(self) -> dict[str, Any]:
        """The way as a dictionary."""


Row = TypeVar("Row", bound=Way)


class Ways(Answer, tuple[Row, ...]):
    """The best way of each GPU and number of GPUs, best first.

    Attributes:
        rows: All ways within the limits, best first.
        left_out: GPUs with their number -> the reason why none of the ways is of them.
    """

    AIM: ClassVar[str]
    """What all ways do, such as "to train"."""
    AXES: ClassVar[tuple[str, str, str]]
    """Quantities of the Pareto front: that of time, that of energy, and the former in words."""

    rows: tuple[Row, ...]
    left_out: dict[str, str]

    def __new__(
        cls, rows: Iterable[Row], left_out: Mapping[str, str], value: Callable[[Row], float] = attrgetter("value")
    ) -> Self:
        """Choose the best of the rows for each GPU and number of GPUs.

        `left_out`: GPUs with their number -> the reason why none of the rows is of them.
        `value`: Function that gives the value of a way; the lowest is best.
        """
        ordered = sorted(rows, key=value)
        best = {row.boards: row for row in reversed(ordered)}
        made = super().__new__(cls, (row for row in ordered if best[row.boards] is row))
        made.rows, made.left_out = tuple(ordered), dict(left_out)
        return made

    def pareto(self) -> tuple[Row, ...]:
        """The Pareto front, fastest first: ways for which no other is both faster and needs less energy."""
        points = self._points(self.rows)
        places = front_of([seconds for seconds, _ in points], [joules for _, joules in points])
        return tuple(self.rows[place] for place in places)

    @abstractmethod
    def _columns(self) -> list[Column]:
        """What a terminal and a notebook show of a way."""

    def described(self, top: int = 12, pareto: bool = False) -> Description:
        """What a terminal and a notebook show: the ways, or their Pareto front, and the GPUs that were left out.

        Args:
            top: Number of ways; 0 for all.
            pareto: Whether to show the Pareto front instead of the best way of each GPU.
        """
        left_out = reason_lines(self.left_out.items())
        ways = listing(self.pareto() if pareto else self, self._columns(), top, left_out)
        return Description(str(self), [ways])

    @staticmethod
    @abstractmethod
    def table_of(rows: Iterable[Any]) -> Table:
        """A row for each way, in the order given."""

    def _table(self) -> Table:
        return self.table_of(self.rows)

    def __str__(self) -> str:
        best = f"; best: {self[0]}" if self else ""
        return f"{len(self)} way{'' if len(self) == 1 else 's'} {self.AIM}, {len(self.left_out)} left out{best}"

    def _points(self, rows: Iterable[Row]) -> list[tuple[float, float]]:
        seconds, joules, _ = self.AXES
        return [(getattr(row, seconds), getattr(row, joules)) for row in rows]

    def _picture(self) -> Picture:
        dots, front = self._points(self.rows), self._points(self.pareto())
        return front_picture(("all ways", dots), front, self.AXES[2], f"{len(dots)} ways {self.AIM}")

    def to_dict(self) -> dict[str, Any]:
        """The choices as plain lists and dictionaries."""
        return {
            "choices": [choice.to_dict() for choice in self],
            "pareto": [choice.to_dict() for choice in self.pareto()],
            "left_out": dict(self.left_out),
        }


class Search(Generic[Row]):
    """Ways that were tried: those within the limits, and why others are none.

    Attributes:
        rows: The ways within the limits.
    """

    def __init__(self) -> None:
        """A search that has tried nothing."""
        self.rows: list[Row] = []
        self._tried: dict[str, bool] = {}
        self._reasons: dict[str, tuple[float, str]] = {}

    @contextmanager
    def trying(self, boards: str) -> Iterator[None]:
        """Try ways to use some GPUs; an error of a user is the reason why they are left out."""
        self._tried.setdefault(boards, False)
        try:
            yield
        except JoulecastError as error:
            self.leave(boards, error.what)

    def leave(self, boards: str, reason: str, near: float = 0.0) -> None:
        """Leave a way out. Of several reasons, the one that is nearest to the limits is told, else the first."""
        if boards not in self._reasons or near > self._reasons[boards][0]:
            self._reasons[boards] = near, reason

    def add(self, boards: str, rows: Iterable[Row]) -> None:
        """Add ways that are within the limits."""
        for row in rows:
            self._tried[boards] = True
            self.rows.append(row)

    @property
    def left_out(self) -> dict[str, str]:
        """GPUs with their number -> why no way to use them is within the limits."""
        other = 0.0, "outside a limit, or without a price, at all clocks and batches"
        return {boards: self._reasons.get(boards, other)[1] for boards, added in self._tried.items() if not added}

    @property
    def nearest(self) -> str | None:
        """What is nearest to the limits; None if nothing is near."""
        (near, reason), boards = max(((found, name) for name, found in self._reasons.items()), default=((0.0, ""), ""))
        return f"{boards}: {reason}" if near else None

    def refuse(self, what: str, allowed: str | None, hint: str, given: str | None = None) -> InputError:
        """The error of a search that has found nothing.

        `given`: What was asked for; None for the reasons why GPUs were left out.
        """
        reasons = [f"{boards}: {reason}" for boards, reason in self.left_out.items()]
        return InputError(what, given=given or "; ".join(reasons[:_NAMED]) or "no GPUs", allowed=allowed, hint=hint)


def asked_tariff(objective: str, objectives: Iterable[str], asked: Mapping[str, Any]) -> Tariff:
    """The prices and the intensity of a question, which suffice for its objective."""
    known = tuple(objectives)
    if objective not in known:
        raise unknown_name("objective", objective, known)
    tariff = Tariff.of(asked["price_per_hour"], asked["price_per_kwh"], asked["carbon"])
    refuse_without(objective, tariff)
    return tariff
