"""Write the two files of joulecast/generation that are made: decoders by name, and times of collectives.

    python benchmarks/generation_tables.py decoders [NAME ...]    (needs torch and transformers)
    python benchmarks/generation_tables.py collectives FOLDER     (that of aiconfigurator2026; needs pyarrow)

With names, the decoders of all others stay as they are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from joulecast.extraction.models.language_models import LANGUAGE_MODELS, Architecture
from joulecast.extraction.models.transformers_models import import_transformers
from joulecast.generation import collectives, models
from joulecast.generation.decoder import Attention, Decoder
from joulecast.generation.parallel import GROUPS
from joulecast.hardware import find_gpu

_SOURCE = "github.com/ai-dynamo/aiconfigurator, commit 095f58a, collectives.parquet (Apache-2.0)"
_KERNELS: Mapping[str, str] = {
    "vLLM_custom_graph": "vllm",
    "SGLang_CustomAllReduce_graph": "sglang",
    "TRTLLM": "tensorrt_llm",
    "NCCL": collectives.NCCL,
}
"""Name of the kernel in the table -> implementation. Eager calls are left out, because they wait for their host."""
_KINDS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "alltoall": "all_to_all"}


def decoder(name: str, row: Architecture) -> Decoder:
    """The parts of a model of the table, from its extracted operations."""
    import torch

    model_class = getattr(import_transformers(), row.class_name)
    if linear := getattr(sys.modules[model_class.__module__], "FalconLinear", None):
        linear.forward = torch.nn.Linear.forward  # The same product, which Falcon writes out.
    config = model_class.config_class(architectures=[row.class_name], **row.sizes)
    found = models.extracted_decoder(config, name)
    if "rotary_dim" in row.sizes:  # GPT-J turns its heads by a function of its own.
        turned = ((replace(part, rotary=True) if isinstance(part, Attention) else part, at) for part, at in found.parts)
        found = replace(found, parts=tuple(turned))
    return replace(found, context=row.context, top_p=name.startswith(models.TOP_P))


def decoders(names: list[str]) -> dict[str, Any]:
    """Name -> decoder in JSON, made again for the names, or for all models if there are none."""
    kept = models.decoders_file() if names else {}
    made = {name: row for name, row in LANGUAGE_MODELS.items() if name not in kept or name in names}
    found = {**kept, **{name: decoder_to_json(decoder(name, row)) for name, row in made.items()}}
    return {name: found[name] for name in sorted(LANGUAGE_MODELS)}


def decoder_to_json(found: Decoder) -> dict[str, Any]:
    """A decoder as plain lists and dictionaries, without its name."""
    parts = [[type(part).__name__, vars(part), list(modules)] for part, modules in found.parts]
    return {"tied": found.tied, "context": found.context, "parts": parts}


def table(path: Path) -> dict[str, Any]:
    """The curves of a table of collectives by the newest version of each engine, with their source."""
    import pyarrow.parquet as parquet

    found: dict[Any, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in parquet.read_table(path).to_pylist():
        implementation = _KERNELS.get(row["kernel"])
        # Larger groups over PCI Express were measured in a server whose GPUs cannot reach each other directly.
        groups = GROUPS if find_gpu(row["gpu"]).link_bandwidth else (1, 2)
        wanted = row["collective"] in _KINDS and row["precision"] in ("half", "bfloat16") and row["gpus"] in groups
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
    return {"source": _SOURCE, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "curves": curves}


def _version(stack: str) -> tuple[tuple[int, ...], str]:
    numbers = "".join(letter if letter.isdigit() else " " for letter in stack).split()
    return tuple(map(int, numbers)), stack


def main() -> None:
    what, *rest = sys.argv[1:]
    if what == "decoders":
        file, content = models.FILE, decoders(rest)
    else:
        file, content = collectives.FILE, table(Path(rest[0]) / "collectives.parquet")
    text = json.dumps(content, separators=(",", ":"))
    # Without a time stamp, the same content always gives the same bytes.
    (Path(models.__file__).parent / file).write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
