"""Makes templates: `python benchmarks/template_making.py [NAME ...]`, for all that have some where no model is named.

Traces a model in every regime, fits templates, checks them at other sizes, and writes them into the package.

A regime in which a template differs from a trace at any checked size is left out. For such sizes, torch is used.
Of language models, few layers are traced, which stand for all (stack.py); one trace of each setting has all layers.
"""

from __future__ import annotations

import json
import lzma
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import torch
from template_fit import Sample, fit
from template_plans import Ranges, plan_of, sizes_in
from template_stack import Stack

from joulecast.errors import ExtractionError, InputError, JoulecastError
from joulecast.extraction.cache import digest, library_version
from joulecast.extraction.job import Job
from joulecast.extraction.models.language_models import LANGUAGE_MODELS
from joulecast.extraction.models.named_models import build
from joulecast.extraction.recorder import Recorder
from joulecast.extraction.templates import store
from joulecast.extraction.templates.store import (
    ANY_OPTIMIZER,
    OPTIMIZER_PATH,
    ModelTemplates,
    Regime,
    Setting,
    Template,
)
from joulecast.extraction.traced_models import traced
from joulecast.operations.attributes import HALF_PRECISIONS
from joulecast.operations.entry import Dropped
from joulecast.operations.inputs import Inputs
from joulecast.operations.operation import Operation

_FITTED, _CHECKED = 4, 2
"""Number of traces per regime."""


@dataclass
class _Cell:
    """A regime and its traces. If torch refuses the sizes, it has no samples."""

    ranges: Ranges
    fitted: list[Sample] = field(default_factory=list)
    checked: list[tuple[tuple[int, ...], Sample | None]] = field(default_factory=list)


class Maker:
    """Traces one model and makes its templates."""

    def __init__(self, name: str) -> None:
        self.name, self.plan = name, plan_of(name)
        self.left_out: list[str] = []
        """Regimes without a template, with the reason."""
        self._module: torch.nn.Module = build(name)
        self._stack = _stack_of(self._module) if name in LANGUAGE_MODELS else None
        depths = () if self._stack is None else (self._stack.short, self._stack.short + self._stack.period)
        self._short = [build(name, {"num_hidden_layers": layers}) for layers in depths]
        self._templates: list[Template] = []
        self._operators: set[str] = set()

    def make(self) -> ModelTemplates:
        """Make the templates of all modes and precisions. Raises ExtractionError: no regime has a template."""
        settings: dict[str, Setting] = {}
        for mode, cached in self._modes():
            key = f"{mode} cached" if cached else mode
            full = self._setting(key, mode, "default", cached)
            if full is not None:
                settings[key] = full
            done = set(full.halves) if full is not None else set()
            for precision in HALF_PRECISIONS:
                if precision not in done and (half := self._setting(f"{key} {precision}", mode, precision, cached)):
                    settings[f"{key} {precision}"] = half
                    done.update(half.halves)
        if not settings:
            raise ExtractionError(
                f"no template of {self.name} holds",
                given="; ".join(self.left_out),
                hint="leave this model out of the templates; torch answers for it",
            )
        versions = {library: library_version(library) for library in self.plan.libraries}
        return ModelTemplates(
            self.plan.inputs,
            settings,
            tuple(self._templates),
            self.plan.limits,
            versions,
            tuple(sorted(self._operators)),
            digest(self._operators),
        )

    def _modes(self) -> Iterator[tuple[str, bool]]:
        yield "inference", False
        yield "training", False
        if self.plan.cached:
            yield "inference", True

    def _setting(self, key: str, mode: str, precision: str, cached: bool) -> Setting | None:
        cells = [self._traced_cell(key, ranges, mode, precision, cached) for ranges in self.plan.cells(cached=cached)]
        alike: dict[object, list[_Cell]] = {}
        for cell in cells:
            structures = {sample.structure() for sample in cell.fitted}
            if len(structures) == 1:
                alike.setdefault(structures.pop(), []).append(cell)
            else:
                self._leave_out(key, cell, "its operations depend on the sizes" if structures else "torch refuses it")
        regimes = [regime for group in alike.values() for regime in self._fitted(key, group, mode, precision)]
        if not regimes:
            return None
        holding = [half for half in HALF_PRECISIONS if all(self._holds_in_half(r, mode, half, cached) for r in regimes)]
        return Setting(tuple(regimes), tuple(holding))

    def _fitted(self, key: str, group: Sequence[_Cell], mode: str, precision: str) -> Iterator[Regime]:
        try:
            template = fit([sample for cell in group for sample in cell.fitted])
        except ExtractionError as error:
            if len(group) == 1:
                self._leave_out(key, group[0], str(error))
                return
            for cell in group:
                yield from self._fitted(key, [cell], mode, precision)
            return
        for cell in group:
            wrong = [sizes for sizes, sample in cell.checked if not _holds(template, sizes, sample, mode, precision)]
            if wrong:
                self._leave_out(key, cell, f"the template is wrong at {wrong[0]}")
                continue
            if self._short and cell is group[-1]:
                sizes, cached = cell.fitted[-1].sizes, "cached" in key
                if not _holds(
                    template, sizes, self._sample(sizes, mode, precision, cached, whole=True), mode, precision
                ):
                    self._leave_out(key, cell, f"the template is wrong for all layers at {sizes}")
                    return
            if template not in self._templates:
                self._templates.append(template)
            yield Regime(cell.ranges, self._templates.index(template))

    def _traced_cell(self, key: str, ranges: Ranges, mode: str, precision: str, cached: bool) -> _Cell:
        cell = _Cell(ranges)
        seed = f"{self.name} {key} {ranges}"
        for i, sizes in enumerate(sizes_in(ranges, _FITTED + _CHECKED, seed, self.plan.limits)):
            sample = self._sample(sizes, mode, precision, cached)
            # A size at which the model does not run cannot be fitted, but the template has to refuse it.
            if i < _FITTED and sample is not None:
                cell.fitted.append(sample)
            else:
                cell.checked.append((sizes, sample))
        if precision == "default" and cell.fitted:
            # In half precision, the model often runs the same calls, but only some of them in the half type.
            half = self._sample(cell.fitted[0].sizes, mode, "bf16", cached)
            if half is not None and half.but_for_precision() == cell.fitted[0].but_for_precision():
                cell.fitted = [replace(sample, half=half.half) for sample in cell.fitted]
        return cell

    def _holds_in_half(self, regime: Regime, mode: str, precision: str, cached: bool) -> bool:
        # Not at the least sizes, at which it was traced in half precision already, to find these calls.
        sizes = sizes_in(regime.ranges, 3, f"{self.name} half", self.plan.limits)[-1]
        sample = self._sample(sizes, mode, precision, cached)
        return _holds(self._templates[regime.template], sizes, sample, mode, precision)

    def _sample(
        self, sizes: tuple[int, ...], mode: str, precision: str, cached: bool, *, whole: bool = False
    ) -> Sample | None:
        job = Job(
            mode=mode,
            precision=precision,
            optimizer=ANY_OPTIMIZER if mode == "training" else None,
            cache_length=sizes[-1] if cached else None,
        )
        given = dict(zip(self.plan.ranges, sizes, strict=False))
        main, shape = next(iter(self.plan.inputs.items()))
        item = tuple(n if isinstance(n, int) else given[n] for n in shape)
        inputs = Inputs.of({main: item} if main else item)
        # In inference there are no additions of gradients, so one depth shows all.
        modules = [self._module] if whole or not self._short else self._short[: 1 + (mode == "training")]
        traces = [each for module in modules if (each := self._traced(module, inputs, job)) is not None]
        if not traces:
            return None
        if len(traces) < len(modules) or any(each[1] != traces[0][1] for each in traces):
            raise ExtractionError("layers differ", given=self.name, hint="trace all layers of this model")
        calls, dropped = traces[0]
        if self._stack is not None and not whole:
            calls = self._stack.deepened(*(each[0] for each in traces))
        operations = tuple((operation, path) for (operation, _), path in calls)
        return Sample(sizes, operations, dropped, tuple(half for (_, half), _ in calls))

    def _traced(
        self, module: torch.nn.Module, inputs: Inputs, job: Job
    ) -> tuple[list[Any], tuple[Dropped, ...]] | None:
        """The calls, each with whether it runs in half precision, and what was dropped; None if torch refuses it."""
        recorders: list[Recorder] = []
        try:
            network = traced(module, inputs, job, self.name, recorders.append)
        except JoulecastError:
            return None
        (recorder,) = recorders
        self._operators |= recorder.operators_run
        calls: list[Any] = [((op, op.precision in HALF_PRECISIONS), path) for op, path in recorder.calls]
        if module is not self._module and calls[-1][1] == OPTIMIZER_PATH:
            (step, half), path = calls[-1]
            elements = sum(parameter.numel() for parameter in self._module.parameters())
            calls[-1] = (Operation(step.kind, [(elements,)], precision=step.precision, mode=step.mode), half), path
        # The amount of dropped work depends on the sizes, so templates do not contain it.
        return calls, tuple(replace(each, work=None) for each in network.dropped)

    def _leave_out(self, key: str, cell: _Cell, reason: str) -> None:
        self.left_out.append(f"{self.name}, {key}, {cell.ranges}: {reason}")


def _stack_of(module: torch.nn.Module) -> Stack | None:
    """Which layers of a language model stand for all; None if they are too few."""
    settings: dict[str, Any] = module.config.to_dict()
    layers = int(module.config.num_hidden_layers)
    lists = [value for value in settings.values() if isinstance(value, list) and len(value) == layers]
    periods = (n for n in range(1, layers) if all(row[i] == row[i - n] for row in lists for i in range(n, layers)))
    period = math.lcm(next(periods), settings.get("interleave_moe_layer_step") or 1)
    try:
        return Stack(layers, settings, period)
    except ValueError:
        return None


def _holds(template: Template, sizes: tuple[int, ...], sample: Sample | None, mode: str, precision: str) -> bool:
    """Whether a template equals a trace, and refuses a size that torch refuses."""
    try:
        calls = template.operations(sizes, mode, precision)
    except InputError:
        return sample is None
    return sample is not None and tuple(calls) == sample.calls and template.dropped == sample.dropped


def save(name: str, model: ModelTemplates) -> None:
    """Write the templates of a model. Equal templates give equal bytes."""
    text = json.dumps({"format": store.FORMAT_VERSION, **model._asdict()}, separators=(",", ":"), default=astuple)
    store.file_of(name).write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    store.load.cache_clear()


def main() -> None:
    """Make and write templates, and print the sizes that they do not cover."""
    for name in sys.argv[1:] or store.names():
        start = time.perf_counter()
        maker = Maker(name)
        model = maker.make()
        save(name, model)
        regimes = sum(len(setting.regimes) for setting in model.settings.values())
        size_kb = store.file_of(name).stat().st_size / 1000
        took_s = time.perf_counter() - start
        print(f"{name}: {len(model.templates)} templates for {regimes} regimes, {size_kb:.1f} kB, {took_s:.0f} s")
        print("".join(f"  left out: {line[:400]}\n" for line in maker.left_out), end="", flush=True)


if __name__ == "__main__":
    main()
