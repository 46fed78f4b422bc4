"""Seconds and joules of collectives between the GPUs of a node.

The times of the engines' own collectives and of NCCL's were measured on six GPUs (`table`). Between
measured sizes they are interpolated in logarithms. A GPU that was not measured gets the times of the measured GPU with
the same kind of link and the most similar bandwidth. The part of a time beyond that of the smallest message scales with
the bandwidth.

Over PCI Express two GPUs were measured, which reach each other directly, at 20 GB/s. In a ring of n each sends n - 1 of
n parts of a message at that rate. Of the two servers with 8 L40S that were measured, one sums up 1 GB in 90 ms, where
this says 93, the other, without direct access, takes ten times as long, like some virtual machines.

The energy was not measured. Each byte that is sent is read, written and added, which are three accesses to memory, and
crosses the link, for which 5 pJ per bit are assumed. This is little compared with the static power of boards that wait
for each other.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..arrays import FloatArray
from ..errors import InputError
from ..hardware import GPU, find_gpu
from ..operations.attributes import ELEMENT_BYTES
from ..operations.operation import Operation
from ..operations.rules import size
from ..predictors.physics.energy import PRIOR_ENERGY
from ..system.caches import remembered
from .parallel import GROUPS

FILE = "collectives.json.gz"
KINDS = frozenset({"all_reduce", "all_gather", "all_to_all"})
NCCL = "pytorch"
"""The implementation of collectives for which an engine calls NCCL."""

_LINK_J_PER_BYTE = 40e-12
_MEMORY_PASSES = 3
_HALF_BYTES = 2.0  # Messages were measured in elements of 16 bits.


class Curve(NamedTuple):
    """Times of a collective on a GPU by message size."""

    elements: Sequence[float]  # Message sizes in elements of 16 bits, of the larger of input and output, ascending
    seconds: Sequence[float]

    def at(self, elements: float) -> float:
        """Seconds at a size; proportional to it beyond the largest measured one."""
        if elements > self.elements[-1]:
            return self.seconds[-1] * elements / self.elements[-1]
        return float(np.exp(np.interp(math.log(elements), np.log(self.elements), np.log(self.seconds))))


@cache
def curves() -> Mapping[tuple[str, str, str, int], Curve]:
    """(GPU, implementation, kind, number of GPUs) -> the measured curve."""
    content = json.loads(gzip.decompress(files(__package__).joinpath(FILE).read_bytes()))
    return {
        (row["gpu"], row["implementation"], row["kind"], row["gpus"]): Curve(row["elements"], row["seconds"])
        for row in content["curves"]
    }


def collective_s(operation: Operation, gpu: GPU) -> float:
    """Seconds that a collective takes."""
    count, kind = operation.attributes["gpus"], operation.kind
    bytes_sent = size(operation.input_shapes[0]) * ELEMENT_BYTES[operation.precision]
    elements = max(1.0, bytes_sent / _HALF_BYTES * (count if kind == "all_gather" else 1))
    link = operation.attributes["link"]
    measured = min(count, 2) if link == "pcie" else count
    like = _measured_like(gpu, link, kind, measured)
    if like is None:
        raise InputError(
            "no collective of so many GPUs was measured",
            given=f"{kind} over {count} GPUs",
            allowed=", ".join(map(str, sorted({n for _, _, of, n in curves() if of == kind}))) or "none",
        )
    by_library = curves()[like.name, NCCL, kind, measured]
    curve = curves().get((like.name, operation.attributes["implementation"], kind, measured), by_library)
    least_s = curve.seconds[0]
    # A ring of n has n / 2 times the steps of a pair, in which each GPU sends 2 (n - 1) / n times as much.
    steps, sent = (count / 2, 2 * (count - 1) / count) if link == "pcie" else (1.0, 1.0)
    rate = _bandwidth(gpu, link) / _bandwidth(like, link)
    return steps * least_s + (curve.at(elements) - least_s) * sent / rate


def collective_j(operation: Operation) -> float:
    """Joules above static power of a collective, on each of its GPUs."""
    moved = size(operation.output_shape) * ELEMENT_BYTES[operation.precision]
    return moved * (_LINK_J_PER_BYTE + _MEMORY_PASSES * PRIOR_ENERGY.hbm_j_per_byte)


def collective_costs(operations: Sequence[Operation], gpu: GPU) -> tuple[FloatArray, FloatArray]:
    """Seconds and joules above static power of each operation; NaN for operations that are no collectives."""
    found = [
        (collective_s(each, gpu), collective_j(each)) if each.kind in KINDS else (math.nan, math.nan)
        for each in operations
    ]
    seconds, joules = np.array(found, dtype=float).reshape(-1, 2).T
    return seconds, joules


def _bandwidth(gpu: GPU, link: str) -> float:
    own = gpu.link_bandwidth if link == "nvlink" else gpu.pcie_bandwidth
    return own or find_gpu("L40S").pcie_bandwidth or 1.0


@remembered()  # Users choose the count.
def _measured_like(gpu: GPU, link: str, kind: str, count: int) -> GPU | None:
    names = sorted({name for name, library, *rest in curves() if library == NCCL and rest == [kind, count]})
    alike = [each for each in map(find_gpu, names) if bool(each.link_bandwidth) == (link == "nvlink")]
    # Of several with the same bandwidth, the same board under whatever name.
    return min(
        alike,
        key=lambda each: (abs(math.log(_bandwidth(each, link) / _bandwidth(gpu, link))), each.board != gpu.board),
        default=None,
    )


_SOURCE = "github.com/ai-dynamo/aiconfigurator, commit 095f58a, collectives.parquet (Apache-2.0)"
_KERNELS: Mapping[str, str] = {
    "vLLM_custom_graph": "vllm",
    "SGLang_CustomAllReduce_graph": "sglang",
    "TRTLLM": "tensorrt_llm",
    "NCCL": NCCL,
}
"""Name of the kernel in the table -> implementation. Eager calls are left out, because they wait for their host."""

_KINDS: Mapping[str, str] = {"all_reduce": "all_reduce", "all_gather": "all_gather", "alltoall": "all_to_all"}
"""Name of a collective in the table -> kind of operation."""

_HALF = ("half", "bfloat16")


def _version(stack: str) -> tuple[tuple[int, ...], str]:
    numbers = "".join(letter if letter.isdigit() else " " for letter in stack).split()
    return tuple(map(int, numbers)), stack


def table(path: Path) -> dict[str, Any]:
    """The curves of a table of collectives, with their source.

    The newest version of each engine is used. Message sizes are numbers of elements of 16 bits.
    """
    import pyarrow.parquet as parquet

    found: dict[Any, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in parquet.read_table(path).to_pylist():
        implementation = _KERNELS.get(row["kernel"])
        # Larger groups over PCI Express were measured in a server whose GPUs cannot reach each other directly.
        groups = GROUPS if find_gpu(row["gpu"]).link_bandwidth else (1, 2)
        wanted = row["collective"] in _KINDS and row["precision"] in _HALF and row["gpus"] in groups
        if implementation and wanted and row["time_us"] > 0:
            key = row["gpu"], implementation, _KINDS[row["collective"]], row["gpus"]
            found[key][row["stack"]][row["message_size"]].append(row["time_us"])
    curves = []
    for key, stacks in sorted(found.items()):
        points = sorted(stacks[max(stacks, key=_version)].items())
        # A larger message takes at least as long as a smaller one; single measurements that say otherwise are noise.
        seconds, longest = [], 0.0
        for _, times_us in points:
            longest = max(longest, statistics.median(times_us))
            seconds.append(round(longest * 1e-6, 10))
        names = dict(zip(("gpu", "implementation", "kind", "gpus"), key, strict=True))
        curves.append({**names, "elements": [elements for elements, _ in points], "seconds": seconds})
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"source": _SOURCE, "sha256": digest, "curves": curves}


def main(folder: str) -> None:
    """Write the file of collectives from the folder aiconfigurator2026 of the measurements.

    `python -m joulecast.generation.collectives FOLDER` does it, and needs pyarrow.
    """
    text = json.dumps(table(Path(folder) / "collectives.parquet"), separators=(",", ":"))
    Path(__file__).with_name(FILE).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
