"""Errors of the predictors for any GPU on networks and GPUs that they were not trained on: the published times of timm.

    python benchmarks/public.py [--predictor any-gpu/boosting --predictor any-gpu/transformer] [--first]

timm (Apache-2.0) publishes times of training and inference steps of its networks on three GPUs in automatic mixed
precision. benchmarks/public/timm.csv has the times that are used here, with their sources. The networks were chosen by
their names, so that many families are included, at the size that they were designed for, and not by their errors. Every
second network in alphabetical order is held back. Physics may be improved with the first half (`--first` reads only
this half), and only the second half is a test.

Writes benchmarks/public/REPORT.md. Networks are extracted with torch and timm, which takes ten minutes on one core, and
cached in the folder --networks.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import joulecast
from joulecast.extraction.models import timm_models
from joulecast.operations.network import Network

HERE = Path(__file__).with_name("public")
PREDICTORS = ("any-gpu/boosting", "any-gpu/transformer")
WORST = 10
_FUSED_ATTENTION_SINCE = 2  # timm calls PyTorch's fused attention from its version 2 on.
_FAST_NORM = "2.4"  # See notes.md.


@dataclass(frozen=True)
class Published:
    """One published time.

    Args:
        gpu: Short name.
        network: As timm calls it.
        family: What it mostly consists of.
        mode: inference or training.
        batch, image: Images, and pixels of a side of one.
        channels_last: Whether tensors lay so.
        torch: Version of PyTorch.
        step_ms: Milliseconds.
        is_first: Whether it is of the half that may be looked at.
    """

    gpu: str
    network: str
    family: str
    mode: str
    batch: int
    image: int
    channels_last: bool
    torch: str
    step_ms: float
    is_first: bool

    @property
    def group(self) -> str:
        """Cases with the same conditions."""
        layout = "channels last" if self.channels_last else "channels first"
        return f"{self.gpu}, {self.mode}, {layout}, torch {self.torch}"

    @property
    def fused_attention(self) -> bool:
        """Whether attention was a single operation."""
        return int(self.torch.split(".")[0]) >= _FUSED_ATTENTION_SINCE

    @property
    def fast_norm(self) -> bool:
        """Whether timm's layer norms ran in half precision."""
        return self.torch == _FAST_NORM

    @property
    def file_name(self) -> str:
        """Name of the extracted network."""
        how = ("" if self.fused_attention else "-unfused") + ("-fast" if self.fast_norm else "")
        return f"{self.network}-{self.mode}-{self.batch}x{self.image}{how}.json"


def published() -> list[Published]:
    """All times, in the order of the file."""
    lines = [line for line in (HERE / "timm.csv").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    rows = list(csv.DictReader(lines))
    first = set(sorted({row["network"] for row in rows})[::2])
    return [
        Published(
            row["gpu"],
            row["network"],
            row["family"],
            row["mode"],
            int(row["batch"]),
            int(row["image"]),
            row["channels_last"] == "1",
            row["torch"],
            float(row["step_ms"]),
            row["network"] in first,
        )
        for row in rows
    ]


def extracted(case: Published, folder: Path) -> Network:
    """A network under autocast in fp16, with weights and all casts; cached in a folder."""
    path = folder / case.file_name
    if path.is_file():
        return Network.load(path)
    layers = timm_models.import_timm().layers
    layers.set_fused_attn(case.fused_attention)
    layers.set_fast_norm(case.fast_norm)
    # timm asks torch whether tensors on the meta device are under autocast. Here, all of them are.
    layers.fast_norm.is_autocast_enabled = lambda device: True
    layers.fast_norm.get_autocast_dtype = lambda device: torch.float16
    import torch

    class UnderAutocast(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cuda", dtype=torch.float16):
                result: torch.Tensor = self.inner(images)
            return result

    module = UnderAutocast(timm_models.build(case.network)).train(case.mode == "training")
    optimizer = "sgd" if case.mode == "training" else None
    shape = (case.batch, 3, case.image, case.image)
    network = joulecast.extract(module, shape, mode=case.mode, optimizer=optimizer)
    folder.mkdir(parents=True, exist_ok=True)
    network.save(path)
    return network


@dataclass(frozen=True)
class Outcome:
    """A published time and its predictions, in milliseconds."""

    case: Published
    predicted_ms: Mapping[str, float]

    def log_ratio(self, predictor: str) -> float:
        """Ratio of predicted to published time."""
        return float(np.log(self.predicted_ms[predictor] / self.case.step_ms))


def as_published(case: Published, folder: Path) -> Network:
    """The extracted network, with its tensors as they lay."""
    return replace(extracted(case, folder), channels_last=case.channels_last)


def outcomes(cases: Iterable[Published], predictors: Sequence[str], folder: Path) -> list[Outcome]:
    """Predict all cases."""
    found = []
    for case in cases:
        network = as_published(case, folder)
        predicted = {p: 1e3 * joulecast.predict(network, gpu=case.gpu, predictor=p).time_s for p in predictors}
        found.append(Outcome(case, predicted))
        print(f"{case.group}: {case.network} {case.step_ms:.0f} ms,", *(f"{ms:.0f}" for ms in predicted.values()))
    return found


def _cells(some: Sequence[Outcome], predictors: Sequence[str]) -> str:
    """Number of networks; for each predictor median and mean of the absolute error, and the bias."""
    cells = [str(len(some))]
    for predictor in predictors:
        logs = np.array([o.log_ratio(predictor) for o in some])
        errors = 100 * abs(np.expm1(logs))
        cells.append(f"{np.median(errors):.0f} / {np.mean(errors):.0f} %, {100 * np.expm1(np.mean(logs)):+.0f} %")
    return " | ".join(cells)


def _table(found: Sequence[Outcome], predictors: Sequence[str], title: str, key: Callable[[Outcome], str]) -> list[str]:
    lines = [f"| {title} | networks | {' | '.join(predictors)} |", "| --- | --- |" + " --- |" * len(predictors)]
    for name in sorted({key(o) for o in found}):
        lines.append(f"| {name} | {_cells([o for o in found if key(o) == name], predictors)} |")
    return [*lines, f"| all | {_cells(found, predictors)} |", ""]


def _section(title: str, found: Sequence[Outcome], predictors: Sequence[str]) -> list[str]:
    if not found:
        return []
    worst = sorted(found, key=lambda o: -abs(o.log_ratio(predictors[0])))[:WORST]
    lines = [f"## {title}", "", "Median / mean absolute error of a step's time, and its bias (geometric mean).", ""]
    lines += _table(found, predictors, "measured", lambda o: o.case.group)
    first_layout = [o for o in found if not o.case.channels_last]
    lines += _table(first_layout, predictors, "family", lambda o: f"{o.case.family}, {o.case.mode}")
    lines += [f"The {len(worst)} that {predictors[0]} is farthest off:", ""]
    lines += [
        f"| network | measured | ms | {' | '.join(predictors)} |",
        "| --- | --- | --- |" + " --- |" * len(predictors),
    ]
    for o in worst:
        ratios = " | ".join(f"{100 * np.expm1(o.log_ratio(p)):+.0f} %" for p in predictors)
        lines.append(f"| {o.case.network} | {o.case.group} | {o.case.step_ms:.0f} | {ratios} |")
    return [*lines, ""]


def report(found: Sequence[Outcome], predictors: Sequence[str]) -> str:
    """The report as Markdown."""
    remarks = (HERE / "notes.md").read_text(encoding="utf-8").strip()
    names = {o.case.network for o in found}
    lines = [
        "# Networks and GPUs that no predictor has seen",
        "",
        f"Made by `python benchmarks/public.py`; do not edit. {len(found)} published times of {len(names)} networks.",
        "",
        remarks,
        "",
    ]
    lines += _section("Networks that were looked at", [o for o in found if o.case.is_first], predictors)
    lines += _section("Networks held back", [o for o in found if not o.case.is_first], predictors)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictor", action="append", help=f"a zoo name or folder; {', '.join(PREDICTORS)}")
    parser.add_argument("--first", action="store_true", help="only the half that may be looked at")
    parser.add_argument("--networks", type=Path, default=Path("build/public"))
    arguments = parser.parse_args()
    predictors = arguments.predictor or PREDICTORS
    found = outcomes((c for c in published() if c.is_first or not arguments.first), predictors, arguments.networks)
    (HERE / "REPORT.md").write_text(report(found, predictors), encoding="utf-8")


if __name__ == "__main__":
    main()
