"""Accounting: seconds and joules of a model that ran, by module, phase and operator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..energy import EnergyTree, Node, Row, Share, TreeComparison
from ..energy.comparison import comparison
from ..energy.node import PHASES
from ..energy.tree import Columns, joules_text
from ..errors import InputError
from ..metering.gpu_shares import program_share
from ..metering.recording import Recording
from ..predictors.networks.memory_levels import DYNAMIC
from ..rendering.answers import Answer, Table
from ..rendering.described import Description, Grid
from ..rendering.pictures import Picture
from ..units import si
from .events import Events
from .model_share import model_shares, tree_by_module
from .shares import Resolution

if TYPE_CHECKING:
    from ..predictors.networks.prediction import Prediction

_LEAST_SHARE = 0.001  # Of the whole; parts below it are not listed, so that a tree stays readable.


@dataclass(frozen=True, repr=False)
class Accounting(Answer):
    """Measured seconds and joules of a model by module, phase and operator.

    With one pass, joules are measured while the profiler runs, and the figures are those of the whole run. With two
    passes, they are measured in a loop without the profiler, and the figures are those of one iteration.

    Args:
        title: Description of the model and of how it ran.
        rows: Seconds and joules by module, phase and operator.
        unattributed: Seconds without any operator, and their joules.
        duration_s: Seconds of the whole run (one pass) or of an undisturbed iteration (two passes).
        passes: Number of passes, 1 or 2.
        iterations: Number of profiled iterations.
        sharing: Whether joules are divided by time, or by a model, which divides dynamic joules by a prediction.
        resolution: How short the events are that the sensor can measure; None if it is not known.
        overhead: Relative difference of profiled and undisturbed iterations, 0.1 for 10 % longer; None with one pass.
        module_share: Phase -> share of the time of its operators that belongs to a module, 0 to 1.
        notes: Notes on what is unknown or inexact.
        events: Events of the profile; None if there are none.
        recording: Recording of the sensors; None if there is none.
        idle_power_w: Device -> idle power in watts, for the devices for which it is known.
    """

    title: str
    rows: tuple[Row, ...]
    unattributed: Share
    duration_s: float
    passes: Literal[1, 2]
    iterations: int
    sharing: Literal["time", "model"] = "time"
    resolution: Resolution | None = None
    overhead: float | None = None
    module_share: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    events: Events | None = field(default=None, repr=False, compare=False)
    recording: Recording | None = field(default=None, repr=False, compare=False)
    idle_power_w: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def total(self) -> Share:
        """Seconds and joules of everything, including what is unattributed."""
        return Share.total([*(row.share for row in self.rows), self.unattributed])

    @property
    def known(self) -> bool:
        """Whether there are joules, measured or estimated; otherwise there are only seconds."""
        return self.total.source != "missing"

    @property
    def measured(self) -> bool:
        """Whether joules were measured."""
        return self.known and not self.estimated

    @property
    def estimated(self) -> bool:
        """Whether joules are estimated from utilization and data sheets, because nothing was measured."""
        return self.known and self.recording is not None and all(d.method == "modelled" for d in self.recording.devices)

    @property
    def energy_j(self) -> float | None:
        """Joules of the whole run or of an iteration; a lower bound if a note says so, None if there are none.

        They are estimates if `estimated`.
        """
        return self.total.energy_j if self.known else None

    def tree(self) -> EnergyTree:
        """Seconds and joules by phase, module and operator."""
        return EnergyTree.of(self.title, self.rows, self.unattributed, self.notes)

    def summarized(self) -> EnergyTree:
        """The tree with repeated layers added up as `layer.*` (SMARAGDINE calls it STEF)."""
        return self.tree().summarized()

    def flat(self) -> EnergyTree:
        """Seconds and joules of each operator of each module, by its qualified name (SMARAGDINE calls it TEF)."""
        rows = [
            Row("", row.share, f"{row.path}.{row.operation}" if row.path else row.operation, row.phase, row.calls)
            for row in self.rows
        ]
        return EnergyTree.of(self.title, rows, self.unattributed, self.notes)

    def by_operator(self) -> EnergyTree:
        """Seconds and joules of each operator, added up over all modules."""
        rows = [Row("", row.share, row.operation, row.phase, row.calls) for row in self.rows]
        return EnergyTree.of(self.title, rows, self.unattributed, self.notes)

    def top(self, n: int = 10, *, summarized: bool = False) -> tuple[Node, ...]:
        """The parts with most joules of their own, or seconds if there are no joules; largest first.

        Args:
            n: Number of parts.
            summarized: Whether repeated layers count as one part.

        Raises:
            InputError: The number is below 1.
        """
        return (self.summarized() if summarized else self.tree()).top(n)

    def stages(self) -> dict[str, Share]:
        """Seconds and joules of each phase that ran."""
        found = {phase: [row.share for row in self.rows if row.phase == phase] for phase in PHASES}
        return {phase: Share.total(shares) for phase, shares in found.items() if shares}

    def compare(self, other: Prediction | EnergyTree | Accounting) -> TreeComparison:
        """Compare the joules of each module with predicted ones: their correlation, and the largest differences.

        Each module is compared without its parts, which would count several times otherwise. In the result, the first
        tree is `other`, and the second is this accounting.

        Args:
            other: A prediction of the same model in the same mode, its tree, or another accounting.

        Raises:
            InputError: No joules were measured.
        """
        self._refuse_without_joules("nothing can be compared with a prediction")
        trees = other if isinstance(other, EnergyTree) else other.tree(), self.tree()
        return comparison(*({(*key, "module", ""): j for key, j in tree_by_module(tree).items()} for tree in trees))

    def by_model(
        self, prediction: Prediction | EnergyTree, static_power_w: float | Mapping[str, float] | None = None
    ) -> Accounting:
        """The same joules, divided anew: dynamic ones by a prediction, static ones by time.

        Time without operators gets its static joules, too.

        Args:
            prediction: A prediction of the same model in the same mode, or its tree.
            static_power_w: Power in watts that is drawn whether anything runs or not: of every counter, or device ->
                watts. None for the idle power in the catalogue, which has only GPUs.

        Raises:
            InputError: No joules were measured, the static power is not known, or the prediction is of another model.
        """
        self._refuse_without_joules("there is nothing to divide")
        parts = [part for part, figure in self.total.energy.items() if figure.source != "missing"]
        given = static_power_w if isinstance(static_power_w, Mapping) else {}
        of_all = static_power_w if isinstance(static_power_w, int | float) else None
        static_w = {}
        for part in parts:
            found = given.get(part[0], self.idle_power_w.get(part[0]) if of_all is None else of_all)
            if found is None or not found >= 0:
                raise InputError(
                    "the static power of a device is not known",
                    given=f"{part[0]}: {found}",
                    allowed="0 W or more",
                    hint="measure it while nothing runs (joulecast measure -- sleep 10), and give static_power_w=...",
                )
            static_w[part] = float(found)
        tree = prediction if isinstance(prediction, EnergyTree) else prediction.tree()
        predicted_j = tree_by_module(tree, DYNAMIC)
        rows, unattributed = model_shares(self.rows, self.unattributed, predicted_j, static_w)
        return replace(self, rows=rows, unattributed=unattributed, sharing="model")

    def of_program(self) -> Accounting:
        """The same without the joules of the machine's other programs.

        The joules of a CPU and of memory are multiplied by this program's share of the CPU time that was used on the
        machine, and those of a GPU by its share of the time in which kernels ran, as EFLECT does. Devices whose share
        is not known keep their joules, and a note says so.
        """
        recorded = () if self.recording is None else self.recording.shares
        shares = {device: program_share(recorded, device) for device in self.total.devices}
        told = [
            f"of {device}, " + ("the program's share is not known" if share is None else f"{100 * share:.0f} % counts")
            for device, share in shares.items()
            if any(device == part for part, _ in self.total.energy)
        ]

        def scaled(share: Share) -> Share:
            factors = {device: 1.0 if found is None else found for device, found in shares.items()}
            return Share(share.time, {p: figure.scaled_by(factors[p[0]]) for p, figure in share.energy.items()})

        rows = tuple(replace(row, share=scaled(row.share)) for row in self.rows)
        return replace(self, rows=rows, unattributed=scaled(self.unattributed), notes=(*self.notes, *told))

    def _refuse_without_joules(self, consequence: str) -> None:
        if not self.measured:
            raise InputError(
                f"no joules were measured, so {consequence}",
                given="an estimate" if self.estimated else "; ".join(self.notes) or "no counter",
                allowed="a machine with an energy counter",
                hint="`joulecast measure -- true` shows what this machine can measure",
            )

    def to_text(self, depth: int = 0, least_share: float = 0.0, *, summarized: bool = False) -> str:
        """A table of modules and operators: joules, seconds, their shares, and power; names indented below parents.

        Args:
            depth: Number of levels to show; 0 for all.
            least_share: Parts with a smaller share are left out, 0 to 1. It is a share of the joules, or of the seconds
                if there are no joules.
            summarized: Whether to add up repeated layers.
        """
        return str(self._grid(self.summarized() if summarized else self.tree(), depth, least_share))

    def _grid(self, tree: EnergyTree, depth: int, least_share: float) -> Grid:
        """A tree of this accounting as a table; see `to_text`."""
        whole_j, whole_s = tree.total.energy_j or 1.0, self.duration_s or 1.0
        columns: Columns = {
            "energy": lambda share, _: joules_text(share),
            "of energy": lambda share, _: (
                "-" if share.source == "missing" else f"{100 * share.energy_j / whole_j:.1f} %"
            ),
            "time": lambda share, _: si(share.time_s, "s"),
            "of time": lambda share, _: f"{100 * share.time_s / whole_s:.1f} %",
            "power": lambda share, _: si(share.power_w, "W"),
        }

        def shows(share: Share) -> bool:
            return (share.energy_j / whole_j if self.known else share.time_s / whole_s) >= least_share

        return tree.grid(columns, depth, shows, rest=True)

    def described(self, depth: int = 3, top: int = 10, *, summarized: bool = False) -> Description:
        """What a terminal and a notebook show: the basis of the figures, the tree, and the largest parts.

        Args:
            depth: Number of levels of the tree; 0 for all.
            top: Number of largest parts; 0 for none.
            summarized: Whether to add up repeated layers.
        """
        tree = self.summarized() if summarized else self.tree()
        parts = [self._grid(tree, depth, _LEAST_SHARE), *([tree.largest(top)] if top else [])]
        left_out = f"parts below {100 * _LEAST_SHARE:g} % are not in the tree above; JSON has them all"
        return Description(f"{self}\n{self.basis}", parts, [left_out, *self.notes])

    @property
    def basis(self) -> str:
        """How the figures were measured, in a few sentences."""
        if self.passes == 2:
            text = f"Joules from an undisturbed loop, shares from {self.iterations} profiled iterations"
            if self.overhead is not None:
                than = "longer than" if self.overhead >= 0 else "less than"
                text += f", which took {100 * abs(self.overhead):.0f} % {than} undisturbed ones"
        else:
            text = "Joules were measured while the profiler ran"
        if not self.known:
            text = text.replace("Joules", "Seconds")
        if self.estimated:
            text = text.replace("were measured", "were estimated")
        by_phase = [f"{100 * share:.1f} % {phase}" for phase, share in self.module_share.items()]
        sentences = [text]
        if by_phase:
            sentences.append(f"Share of the operators' time that belongs to modules: {', '.join(by_phase)}")
        if self.resolution is not None and self.measured:
            resolved = str(self.resolution)
            sentences.append(resolved[0].upper() + resolved[1:])
        if self.sharing == "model":
            sentences.append("Dynamic joules are divided by a prediction, static ones by time")
        return ". ".join(sentences) + "."

    def _table(self) -> Table:
        return self.tree()._table()

    def _picture(self) -> Picture:
        return self.tree()._picture()

    def to_dict(self) -> dict[str, Any]:
        """Everything but the events and readings, as plain lists and dictionaries; quantities in SI units."""
        figures = ("title", "passes", "sharing", "iterations", "duration_s", "energy_j", "estimated", "overhead")
        return {
            **{name: getattr(self, name) for name in figures},
            "module_share": dict(self.module_share),
            "resolution": None if self.resolution is None else asdict(self.resolution),
            "tree": self.tree().to_dict(),
        }

    def __str__(self) -> str:
        """One line with joules and seconds."""
        joules = "joules not measured" if self.energy_j is None else si(self.energy_j, "J")
        if self.estimated:
            joules += " estimated, not measured"
        of = "per iteration" if self.passes == 2 else f"in {self.iterations} iterations"
        return f"{self.title}: {joules}, {si(self.duration_s, 's')} {of}"
