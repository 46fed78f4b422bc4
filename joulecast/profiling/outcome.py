"""From the journal of a campaign to a Dataset; needs no torch, so it can be done on another machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..datasets import Card, Dataset, Measurement, NetworkMeasurement, save
from ..errors import InputError
from ..operations import Operation
from .journal import Journal

METHODS = {
    "inference": ("forward_distinct", "forward in eval and inference mode over distinct instances, wall clock"),
    "training": (
        "forward_backward_distinct",
        "forward in train mode and backward with a random output gradient over distinct instances, gradients cleared",
    ),
}


def dataset_of(journal: Journal) -> Dataset:
    """The finished measurements of a journal.

    Raises:
        InputError: Nothing was measured.
        DatasetError: A measurement is impossible.
    """
    measurements, networks = tuple(_measurements(journal)), tuple(_networks(journal))
    if not measurements:
        raise InputError(
            "nothing was measured",
            given=f"{journal.path}, {len(journal.records)} records",
            hint="see the reasons there",
        )
    days = sorted(m.started[:10] for m in measurements)
    used = {m.method for m in measurements}
    facts = journal.facts
    card = Card(
        gpu=journal.campaign["device"],
        clock_mhz=None,
        source=f"joulecast collect, campaign {journal.campaign['name']}",
        licence="Apache-2.0",
        method=dict(pair for pair in METHODS.values() if pair[0] in used),
        sensor=facts.get("sensor", "none"),
        software={name: facts.get(name, "none") for name in ("torch", "cuda", "driver")},
        measured=(days[0], days[-1]),
        power_limit_w=facts.get("power_limit_w"),
        limits=tuple(sorted({record["reason"] for record in journal.records if record["status"] == "failed"})),
    )
    return Dataset(card, measurements, networks)


def _measurements(journal: Journal) -> Iterator[Measurement]:
    for line, record in enumerate(journal.records, start=2):
        if record["status"] == "ok" and "operation" in record:
            yield _measurement(record, line, journal.campaign["name"])


def _networks(journal: Journal) -> Iterator[NetworkMeasurement]:
    for line, record in enumerate(journal.records, start=2):
        # Without power there is nothing to check an energy prediction against; the journal keeps the time.
        if record["status"] == "ok" and "network" in record and record["power"]["power_w"] is not None:
            task, time_s, power_w = record["network"], record["timing"]["time_s"], record["power"]["power_w"]
            yield NetworkMeasurement(
                network=task["model"],
                input_shape=tuple(task["input_shape"]),
                precision=task["precision"],
                mode=task["mode"],
                time_s=time_s,
                power_w=power_w,
                energy_j=power_w * time_s,
                campaign=journal.campaign["name"],
                line=line,
            )


def _measurement(record: dict[str, Any], line: int, campaign: str) -> Measurement:
    timing, power = record["timing"], record["power"]
    operation = Operation.from_json(record["operation"])
    power_w = power["power_w"]
    return Measurement(
        operation=operation,
        time_s=timing["time_s"],
        power_w=power_w,
        energy_j=None if power_w is None else power_w * timing["time_s"],
        device_time_s=timing["device_time_s"],
        power_std_w=power["power_std_w"],
        iterations=timing["iterations"],
        duration_s=timing["end_s"] - timing["start_s"],
        campaign=campaign,
        method=METHODS[operation.mode][0],
        started=record["started"],
        line=line,
        remark="; ".join((*timing["remarks"], *power["remarks"])),
    )


def write_dataset(journal: Journal, folder: Path) -> Dataset:
    """Turn a journal into a dataset in a folder.

    Raises:
        MissingDependencyError: pyarrow is not installed; the journal holds everything.
    """
    dataset = dataset_of(journal)
    save(dataset, folder)
    return dataset
