"""Nicolai's tables I and II: whole networks measured, summed from measured operations with error bars, and ours.

His sum of a network adds time and energy of every leaf module that he measured alone, times how often it runs. Its
error bars add up in squares, one for every call, as his code computes them. Ours is predicted by a model that has seen
neither the network under any size, nor the operations that only it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import sqrt
from typing import Any, NamedTuple

from joulecast.datasets import Dataset, Measurement, NetworkMeasurement
from joulecast.extraction import network_of
from joulecast.operations.network import Network
from joulecast.operations.operation import Operation
from joulecast.predictors.evaluation.errors import statistics
from joulecast.predictors.evaluation.left_out import leave_networks_out

# (mode, precision) -> the campaign of the operations that belongs to the networks'.
CAMPAIGNS = {
    ("inference", "default"): "finalbench_all_operations_A30/",
    ("inference", "fp32"): "finalbench_all_operations_A30_no_tc/",
    ("training", "default"): "operations_A30_train/4685fb9e76",
    ("training", "fp32"): "operations_A30_no_tc_train/12f6a79586",
}
TITLES = {
    ("inference", "default"): "Table I, inference on the A30 with tensor cores",
    ("inference", "fp32"): "Table I, inference on the A30 without tensor cores",
    ("training", "default"): "Table II, training on the A30 with tensor cores",
    ("training", "fp32"): "Table II, training on the A30 without tensor cores",
}
# What figure 6.1 compares: the A30 with and without tensor cores, and the 2080 Ti, of which two runs differ in power.
ORDER = {
    "A30, tensor cores": ("NVIDIA A30", "finalbench_all_operations_A30/"),
    "A30": ("NVIDIA A30", "finalbench_all_operations_A30_no_tc/"),
    "2080 Ti, run of the networks": ("NVIDIA GeForce RTX 2080 Ti", "finalbench_all_operations_RTX2080TI/"),
    "2080 Ti, earlier run": ("NVIDIA GeForce RTX 2080 Ti", "RTX2080TI_operations_bench_run/"),
}
LEAST_SHARED = 0.6  # Of a network's operations must have been measured in all four for it to be compared.
Known = dict[Operation, Measurement]


class Sum(NamedTuple):
    """A network summed up from operations that were measured alone.

    Args:
        time_s, time_std_s: Seconds, and their standard deviation.
        energy_j, energy_std_j: Joules, likewise.
        calls: Calls of operations that were measured alone.
        missing: Calls of operations that were not, and do some work.
    """

    time_s: float
    time_std_s: float
    energy_j: float
    energy_std_j: float
    calls: int
    missing: int


def measured_alone(dataset: Dataset, mode: str, campaign: str) -> Known:
    """The last measurement of each operation in a campaign; as they are, usable or not."""
    rows = [m for m in dataset.measurements if m.operation.mode == mode and m.campaign.startswith(campaign)]
    return {m.operation: m for m in rows if m.energy_j is not None}


def summed(network: Network, known: Known) -> Sum:
    """Sum up a network as he does: N x t, and the square root of N x sigma x sigma over all operations."""
    found = [(entry.count, known[entry.operation]) for entry in network if entry.operation in known]
    missing = sum(entry.count for entry in network if entry.operation not in known and not entry.operation.is_identity)
    return Sum(
        sum(count * m.time_s for count, m in found),
        sqrt(sum(count * (m.time_std_s or 0.0) ** 2 for count, m in found)),
        sum(count * (m.energy_j or 0.0) for count, m in found),
        sqrt(sum(count * (m.energy_std_j or 0.0) ** 2 for count, m in found)),
        sum(count for count, _ in found),
        missing,
    )


def line_of(
    m: NetworkMeasurement, ours: Sequence[float], network: Network, known: Known, deviations: tuple[float, float]
) -> str:
    """A line of the table: measured, summed, ours, in milliseconds and joules."""
    his, (time_s, energy_j) = summed(network, known), ours
    time_std_s, energy_std_j = deviations
    return (
        f"| {m.network} {m.input_shape[-1]} "
        f"| {1e3 * m.time_s:.2f} +- {1e3 * time_std_s:.2f} | {1e3 * his.time_s:.2f} +- {1e3 * his.time_std_s:.2f} "
        f"({his.time_s / m.time_s - 1:+.0%}) | {1e3 * time_s:.2f} ({time_s / m.time_s - 1:+.0%}) "
        f"| {m.energy_j:.3f} +- {energy_std_j:.3f} | {his.energy_j:.3f} +- {his.energy_std_j:.3f} "
        f"({his.energy_j / m.energy_j - 1:+.0%}) | {energy_j:.3f} ({energy_j / m.known_energy_j - 1:+.0%}) "
        f"| {his.calls} of {his.calls + his.missing} |"
    )


HEADER = """| network | measured ms | summed ms | ours ms | measured J | summed J | ours J | calls summed |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def _deviations(source: list[dict[str, str]], m: NetworkMeasurement) -> tuple[float, float]:
    row = source[m.line - 2]
    return float(row["time_std_s"]), float(row["energy_std_j"])


def tables(dataset: Dataset, recipe: Any, source: list[dict[str, str]]) -> Iterator[str]:
    """The four tables and, over each, the mean absolute errors of both."""
    for mode in ("inference", "training"):
        networks = {
            m: network_of(m.network, m.input_shape, mode=mode, precision=m.precision)
            for m in dataset.usable_networks(mode)
        }
        errors = leave_networks_out(dataset, mode, recipe, networks)[0]
        _, composed = next(errors.groups("split"))  # The other split is of plain sums.
        for precision, mine in sorted(composed.groups("precision"), key=lambda group: group[0]):
            known = measured_alone(dataset, mode, CAMPAIGNS[mode, precision])
            yield f"### {TITLES[mode, precision]}\n"
            yield HEADER
            ours = zip(mine.of, mine.predicted["time"].tolist(), mine.predicted["energy"].tolist(), strict=True)
            for m, *predicted in sorted(ours, key=lambda one: one[0].energy_j):
                yield line_of(m, predicted, networks[m], known, _deviations(source, m))
            sums = [(m, summed(networks[m], known)) for m in mine.of]
            his_time = sum(abs(s.time_s / m.time_s - 1) for m, s in sums) / len(sums)
            his_energy = sum(abs(s.energy_j / m.energy_j - 1) for m, s in sums) / len(sums)
            our_time, our_energy = (statistics(mine.relative(quantity))["mean"] for quantity in ("time", "energy"))
            inside = sum(abs(s.energy_j - m.energy_j) <= s.energy_std_j for m, s in sums)
            yield (
                f"\nMean absolute error of time: summed {his_time:.1%}, ours {our_time:.1%}; of energy: summed "
                f"{his_energy:.1%}, ours {our_energy:.1%}. The measured energy lies within the error bars of the sum "
                f"for {inside} of {len(sums)} networks.\n"
            )


def order(datasets: Mapping[str, Dataset], networks: Sequence[tuple[str, int]], batch: int) -> Iterator[str]:
    """Energies of the operations that all four settings measured, network by network."""
    known = [
        {
            m.operation.replace(precision="fp32"): m
            for m in measured_alone(datasets[gpu], "inference", campaign).values()
        }
        for gpu, campaign in ORDER.values()
    ]
    yield "### Whose power the order of figure 6.1 rests on\n"
    yield ORDER_HEAD
    yield "| network | operations in all four | " + " | ".join(f"{name}, J" for name in ORDER) + " |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name, size in networks:
        network = network_of(name, (batch, 3, size, size), mode="inference", precision="fp32")
        shared = [entry for entry in network if all(entry.operation in each for each in known)]
        if len(shared) >= LEAST_SHARED * len(network):
            sums = [sum(e.count * each[e.operation].energy_j for e in shared) for each in known]
            cells = " | ".join(f"{joules:.3f}" for joules in sums)
            yield f"| {name} {size} | {len(shared)} of {len(network)} | {cells} |"
    yield ""


ORDER_HEAD = """Joules of the operations of a network that were measured in all four settings. Both runs of the 2080 \
Ti agree in time, and differ by a factor of 1.4 to 1.9 in energy. With the lower readings the 2080 Ti lies between the \
A30 with and without tensor cores for some networks, and near the latter for the others; with the higher readings it \
needs most for all of them. Which of them his figures show cannot be seen from what was published: the measurements of \
whole networks on the 2080 Ti are not among it. We learn from the higher ones, because a sensor that averages over \
idle time reads too little and never too much.
"""
REASONS = """Summed and measured differ for two reasons that his error bars do not contain. Work that no leaf module \
shows (residual additions, attention, concatenations) is not summed ("calls summed"); and the loop of a small \
operation waits for the host, which a network does not do for each of them, so that a sum of such loops is too long. \
Networks of his whose measurements were not published with the others are not here. Ours adds the device times of \
parts, lets host and device overlap, and learned host costs from the other networks."""


def section(
    datasets: Mapping[str, Dataset], recipe: Any, source: list[dict[str, str]], networks: Sequence[tuple[str, int]]
) -> str:
    """The section of the page."""
    a30 = datasets["NVIDIA A30"]
    return "\n".join([REASONS + "\n", *tables(a30, recipe, source), *order(datasets, networks, batch=32)])
