"""Device time and power of kernels in half precision and below, on sizes, GPUs and generations that are left out.

    joulecast datasets import aiconfigurator2026 ../shared/data/aiconfigurator2026 --rows 300000
    python benchmarks/kernels.py --family attention --family decoding build/datasets/h200 build/datasets/b200 ...

Prints Markdown. benchmarks/KERNELS.md has its second to last table, made with --rows 3000, and what was tried. Calls of
less than 10 us are left out, and the datasets have no power for calls of less than 60 us. For comparison, it prints the
errors of `any-gpu/boosting` alone, which was not trained on such kernels. A last table shows how much slower sustained
runs are under the power cap: as measured, and as the clock law derives it from the learned power.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from joulecast.datasets import load
from joulecast.hardware import GPU
from joulecast.operations.operation_list import OperationList
from joulecast.predictors.any_gpu.predictor import AnyGpuPredictor
from joulecast.predictors.evaluation.kernels import SPLITS, tables, validate_kernels, validate_power
from joulecast.predictors.kernels.families import FAMILIES
from joulecast.predictors.kernels.fit import Measured, by_variant, fit_kernels
from joulecast.predictors.kernels.fit_power import Readings, fit_power, readings
from joulecast.predictors.kernels.learned import Kernels
from joulecast.predictors.measured.rows import power_rows
from joulecast.predictors.recipes import load_kernel_recipe
from joulecast.zoo.catalogue import ANY_GPU
from joulecast.zoo.entries.entry import load_any

_LEAST_S = 10e-6
_TOP_CLOCK = 0.97  # Share of the default clock from which on a run counts as not slowed down by the cap.
_SAMPLE = 400


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("datasets", nargs="+", type=Path)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES), help="can be repeated; default: all")
    parser.add_argument("--recipe", type=Path, default=Path("predictors/kernels.toml"))
    parser.add_argument("--rows", type=int, default=20_000, help="of a variant on a GPU")
    arguments = parser.parse_args()
    recipe = replace(load_kernel_recipe(arguments.recipe), most_rows=arguments.rows)
    data = [load(folder) for folder in arguments.datasets]
    measured = {
        names: [long for table in found if len((long := _long(table)).device_s)]
        for names, found in by_variant(data).items()
        if names[0] in (arguments.family or FAMILIES)
    }
    kernels = fit_kernels(measured, recipe)
    measured = {names: measured[names] for names in kernels.variants}
    powers = readings(kernels, power_rows(data))
    print(f"# Kernels in half precision and below\n\n{SPLITS}\n")
    print("\n".join(_errors("Device time of calls over 10 us", tables(validate_kernels(measured, recipe)))))
    print("\n".join(_errors("Power of calls over 60 us", tables(validate_power(kernels, powers, recipe)))))
    print("\n".join(_without(measured)))
    learned = {n: replace(v, power=fit_power(powers[n], recipe)) for n, v in kernels.variants.items() if n in powers}
    print("\n".join(_sustained(Kernels(learned), powers)))


def _long(table: Measured) -> Measured:
    return table.some(np.flatnonzero(table.device_s >= _LEAST_S))


def _errors(title: str, errors: dict[str, dict[str, tuple[int, float, float]]]) -> Iterator[str]:
    yield from (
        f"## {title}",
        "",
        "| kernels | left out | operations | median | mean |",
        "| --- | --- | --- | --- | --- |",
    )
    for names, rows in errors.items():
        for split, (count, middle, mean) in rows.items():
            yield f"| {names} | {split} | {count} | {100 * middle:.1f} % | {100 * mean:.1f} % |"
    yield ""


def _without(measured: dict[tuple[str, str], list[Measured]]) -> Iterator[str]:
    """Errors of the predictor for any GPU without the models of kernels."""
    yield from (f"## The same operations by {ANY_GPU} alone", "", "| kernels | GPU | operations | median | mean |")
    yield "| --- | --- | --- | --- | --- |"
    entry = load_any(Path("zoo") / ANY_GPU)
    for names, found in measured.items():
        for table in found:
            if not all(operation.precision in table.gpu.unquantized for operation in table.operations):
                continue
            some = table.some(np.random.default_rng(0).permutation(len(table.device_s))[:_SAMPLE])
            alone = AnyGpuPredictor(table.gpu, "inference", entry.learned).predict(some.operations)
            errors = np.abs(alone.device_time_s / some.device_s - 1)
            middle, mean = 100 * np.median(errors), 100 * errors.mean()
            yield f"| {', '.join(names)} | {table.gpu.name} | {len(errors)} | {middle:.1f} % | {mean:.1f} % |"
    yield ""


def _sustained(kernels: Kernels, powers: dict[tuple[str, str], list[Readings]]) -> Iterator[str]:
    """Cost of the power cap: median ratio of sustained to burst time for operations whose clock the cap lowers."""
    yield from ("## Sustained over burst, where the cap holds the clock", "")
    yield "| kernels | GPU | operations | measured | predicted | power over the cap: measured | predicted |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    entry = load_any(Path("zoo") / ANY_GPU)
    for names, found in powers.items():
        for table in found:
            predictor = AnyGpuPredictor(table.gpu, "inference", entry.learned, kernels=kernels)
            some = table.some(np.random.default_rng(0).permutation(len(table.power_w))[:_SAMPLE])
            held = _held(predictor, some.operations, table.gpu)
            capped = held[:, 1] < _TOP_CLOCK * table.gpu.boost_clock_mhz
            if capped.any():
                ratio = np.median(some.measured_s[capped] / some.burst_s[capped])
                drawn = np.median(some.power_w[capped]) / table.gpu.power_limit_w
                predicted, power = np.median(held[capped, 0]), np.median(held[capped, 2]) / table.gpu.power_limit_w
                yield (
                    f"| {', '.join(names)} | {table.gpu.name} | {int(capped.sum())} | {ratio:.2f} | {predicted:.2f} "
                    f"| {drawn:.2f} | {power:.2f} |"
                )


def _held(predictor: AnyGpuPredictor, operations: OperationList, gpu: GPU) -> np.ndarray:
    """Ratio of sustained to burst time, held clock and power of each operation in a loop of calls."""
    found: list[Sequence[float]] = []
    for operation in operations:
        burst = predictor.predict_for_network([operation], gpu.power_limit_w)
        settled = burst.together(np.ones(1), np.zeros(1), float(gpu.boost_clock_mhz), gpu.power_limit_w)
        power_w = float(predictor.predict([operation]).power_w[0])
        ratio = float(settled.device_time_s[0] / burst.device_time_s[0])
        found.append((ratio, float(np.ravel(settled.held_clock_mhz)[0]), power_w))
    return np.array(found)


if __name__ == "__main__":
    main()
