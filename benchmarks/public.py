"""Errors of the predictors for any GPU on networks and GPUs that they were not trained on: the published times of timm.

    python benchmarks/public.py [--predictor any-gpu/forest --predictor any-gpu/transformer] [--first]

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
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from compared import LEGEND, Compared, kept, rows_of, table, write

import joulecast
from joulecast.extraction.models.named_models import build_timm, import_timm
from joulecast.operations.network import Network

HERE = Path(__file__).with_name("public")
PREDICTORS = ("any-gpu/forest", "any-gpu/transformer")
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
    rows = rows_of(HERE / "timm.csv")
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


def extracted(case: Published) -> Network:
    """A network under autocast in fp16, with weights and all casts."""
    layers = import_timm().layers
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

    module = UnderAutocast(build_timm(case.network)).train(case.mode == "training")
    optimizer = "sgd" if case.mode == "training" else None
    shape = (case.batch, 3, case.image, case.image)
    return joulecast.extract(module, shape, mode=case.mode, optimizer=optimizer)


def as_published(case: Published, folder: Path) -> Network:
    """The extracted network, with its tensors as they lay."""
    network = kept(folder / case.file_name, lambda: extracted(case))
    return replace(network, channels_last=case.channels_last)


def outcomes(cases: Iterable[Published], predictors: Sequence[str], folder: Path) -> list[Compared]:
    """Predict all cases; the predictors take the places of quantities."""
    compared = []
    for case in cases:
        network = as_published(case, folder)
        predicted = {p: 1e3 * joulecast.predict(network, gpu=case.gpu, predictor=p).time_s for p in predictors}
        compared.append(Compared.of(case, {name: (ms, case.step_ms) for name, ms in predicted.items()}))
        print(f"{case.group}: {case.network} {case.step_ms:.0f} ms,", *(f"{ms:.0f}" for ms in predicted.values()))
    return compared


def section(title: str, compared: Sequence[Compared], predictors: Sequence[str]) -> list[str]:
    """Errors of a step's time, and the networks that the first predictor is farthest off."""
    if not compared:
        return []
    worst = sorted(compared, key=lambda each: -abs(each.logs[predictors[0]]))[:WORST]
    lines = [f"## {title}", "", LEGEND, ""]
    lines += table("measured", compared, lambda each: each.run.group, predictors)
    first_layout = [each for each in compared if not each.run.channels_last]
    lines += table("family", first_layout, lambda each: f"{each.run.family}, {each.run.mode}", predictors)
    lines += [f"The {len(worst)} that {predictors[0]} is farthest off:", ""]
    columns = " | ".join(predictors)
    lines += [f"| network | measured | ms | {columns} |", "| --- | --- | --- |" + " --- |" * len(predictors)]
    for each in worst:
        errors = " | ".join(each.error(predictor) for predictor in predictors)
        lines.append(f"| {each.run.network} | {each.run.group} | {each.run.step_ms:.0f} | {errors} |")
    return [*lines, "", *shared(compared, predictors[0])]


def shared(compared: Sequence[Compared], predictor: str) -> list[str]:
    """How alike the errors of the same networks are on two GPUs."""
    logs: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for each in compared:
        if not each.run.channels_last:
            logs[each.run.mode, each.run.gpu][each.run.network] = each.logs[predictor]
    lines = ["| the same networks | networks | correlation of errors |", "| --- | --- | --- |"]
    for ((mode, gpu), one), ((other_mode, other_gpu), other) in combinations(logs.items(), 2):
        if mode == other_mode:
            both = [(log, other[name]) for name, log in one.items() if name in other]
            lines.append(
                f"| {gpu} and {other_gpu}, {mode} | {len(both)} | {np.corrcoef(np.transpose(both))[0, 1]:.2f} |"
            )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictor", action="append", help=f"a zoo name or folder; {', '.join(PREDICTORS)}")
    parser.add_argument("--first", action="store_true", help="only the half that may be looked at")
    parser.add_argument("--networks", type=Path, default=Path("build/public"))
    arguments = parser.parse_args()
    predictors = arguments.predictor or PREDICTORS
    compared = outcomes((c for c in published() if c.is_first or not arguments.first), predictors, arguments.networks)
    names = {each.run.network for each in compared}
    lines = [f"{len(compared)} published times of {len(names)} networks.", ""]
    lines += [(HERE / "notes.md").read_text(encoding="utf-8").strip(), ""]
    lines += section("Networks that were looked at", [each for each in compared if each.run.is_first], predictors)
    lines += section("Networks held back", [each for each in compared if not each.run.is_first], predictors)
    write(HERE / "REPORT.md", "Networks and GPUs that no predictor has seen", "public.py", lines)


if __name__ == "__main__":
    main()
