"""Write the file of collectives: `python -m joulecast.generation.collective_table FOLDER` (needs pyarrow).

FOLDER is the folder aiconfigurator2026 of the measurements: kernels of LLM engines and NCCL, from
github.com/ai-dynamo/aiconfigurator (Apache-2.0, commit 095f58a). The newest version of each engine is used. Message
sizes are numbers of elements of 16 bits.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..hardware import find_gpu
from .collectives import FILE, NCCL
from .parallel import GROUPS

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
    """The curves of a table of collectives, with their source."""
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
    """Write the file of collectives from a folder of measurements."""
    text = json.dumps(table(Path(folder) / "collectives.parquet"), separators=(",", ":"))
    Path(__file__).with_name(FILE).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
