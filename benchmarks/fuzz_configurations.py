"""Configurations of transformers (config.json) that name code, files, kernels and other libraries, for fuzz_files.py.

Each case is a good configuration in which one to three fields, anywhere, name a path. It is read three times: while
there is nothing at that path, a pickle that makes a file, or a folder with a configuration of timm. Faults are an
exception that is no JoulecastError, code that was run, a path that was opened (its time of access says so, where the
file system keeps it), and an outcome that depends on what is at the path.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
TEXT = {**SIZES, "vocab_size": 99}
BERT = {"model_type": "bert", "architectures": ["BertModel"], **TEXT}
VISION = {**SIZES, "image_size": 32, "patch_size": 16}
TIMM = {"model_type": "timm_wrapper", "architecture": "resnet18"}
GOOD: dict[str, dict[str, Any]] = {
    "bert": BERT,
    "llama": {**TEXT, "model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "clip": {"model_type": "clip", "text_config": TEXT, "vision_config": VISION},
    "llava": {
        "model_type": "llava",
        "text_config": BERT,
        "vision_config": {**VISION, "model_type": "clip_vision_model"},
    },
    "t5": {
        "model_type": "t5",
        "d_model": 32,
        "d_ff": 48,
        "d_kv": 16,
        "num_layers": 1,
        "feed_forward_proj": "gated-gelu",
    },
    "encoder_decoder": {"model_type": "encoder-decoder", "encoder": BERT, "decoder": {**BERT, "is_decoder": True}},
    "rag": {"model_type": "rag", "question_encoder": BERT, "generator": BERT},
    "detr": {"model_type": "detr", "d_model": 32},
    "upernet": {"model_type": "upernet"},
    "dpt": {"model_type": "dpt", **VISION},
    "timm": TIMM,
}
PATH, NAMED = "{the path}", "named.pt"
ATTACKS: tuple[dict[str, Any], ...] = (
    {**TIMM, "model_args": {"checkpoint_path": PATH}},
    {**TIMM, "architecture": f"local-dir:{PATH}"},
    {**GOOD["llava"], "vision_config": {**TIMM, "model_args": {"checkpoint_path": PATH}}},
    {"model_type": "detr", "backbone": PATH, "use_timm_backbone": True, "backbone_kwargs": {"checkpoint_path": PATH}},
    {"model_type": "upernet", "backbone_config": {"model_type": "timm_backbone", "backbone": f"local-dir:{PATH}"}},
    {**BERT, "attn_implementation": PATH, "auto_map": {"AutoModel": PATH}},
)
NAMES = ("auto_map", "trust_remote_code", "backbone", "backbone_config", "backbone_kwargs", "use_timm_backbone")
NAMES += ("use_pretrained_backbone", "attn_implementation", "_attn_implementation", "_attn_implementation_internal")
NAMES += ("experts_implementation", "model_args", "architecture", "architectures", "pretrained_cfg", "checkpoint_path")
NAMES += ("index_path", "passages_path", "dataset", "_name_or_path", "name_or_path", "quantization_config", "dtype")
NAMES += (
    "model_type",
    "hidden_act",
    "custom_pipelines",
    "per_layer_config",
    "tokenizer_class",
    "text_config",
    "adapter",
)
NAMES += ("pretrained_model_name_or_path", "config", "vision_config", "use_kernels", "kernel_config", "__class__")


def hostile(path: str, rng: random.Random) -> Any:
    """A value that names a path, in one of the forms in which libraries take it."""
    forms: tuple[Any, ...] = (
        *(
            path,
            Path(path).name,
            f"local-dir:{path}",
            f"file://{path}",
            f"hf-hub:{path}",
            f"{path}@main:x",
            [path],
        ),
        *(
            True,
            {"checkpoint_path": path},
            {"AutoModel": f"{path}--evil.Evil"},
            {"": path},
            {"file": path, "path": path},
        ),
        {**TIMM, "model_args": {"checkpoint_path": path}},
        {**TIMM, "architecture": f"local-dir:{path}"},
        {"model_type": "timm_backbone", "backbone": path, "use_pretrained_backbone": True},
        {"model_type": "bert", "attn_implementation": path, **TEXT},
        {"load_in_4bit": True, "quant_method": path},
    )
    return rng.choice(forms)


def damage(path: Path, rng: random.Random) -> None:
    """Write a configuration in which one to three fields name another path."""
    named = str(path.parent / NAMED)
    content = copy.deepcopy(rng.choice(list(GOOD.values())))
    if rng.random() < 0.3:
        content = json.loads(json.dumps(rng.choice(ATTACKS)).replace(PATH, named))
    for _ in range(rng.choice([1, 1, 2, 3])):
        node = content
        while (inner := [value for value in node.values() if isinstance(value, dict) and value]) and rng.random() < 0.5:
            node = rng.choice(inner)
        name = rng.choice(NAMES if rng.random() < 0.8 else list(node) or NAMES)
        node[name] = hostile(named, rng)
    path.write_text(json.dumps(content))


class Evil:
    """Unpickled, it makes a folder."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


class BreachError(Exception):
    """A configuration did what it must not do."""


def outcome(path: Path) -> str:
    """What extracting a configuration gives: the number of operations, or the error."""
    import joulecast
    from joulecast.errors import JoulecastError

    try:
        return f"{len(joulecast.extract(path, (1, 8)))} operations"
    except JoulecastError as error:
        return str(error)


def read(path: Path) -> str:
    """Read a configuration with its path in three states.

    Raises:
        BreachError: It ran code, or opened the path.
    """
    named, marker = path.parent / NAMED, path.parent / "code-was-run"
    if named.is_dir():  # left where this was read before, and too slowly
        shutil.rmtree(named)
    first = outcome(path)
    for state in ("a pickle", "a folder"):
        if state == "a pickle":
            named.write_bytes(pickle.dumps(Evil(str(marker))))
        else:
            named.unlink()
            named.mkdir()
            (named / "config.json").write_text(json.dumps({"architecture": "resnet18", "num_classes": 2}))
        watched = [named, *(named.glob("*") if named.is_dir() else ())]
        for each in watched:
            os.utime(each, (0, 1))  # any access sets the first of these, unless the file system keeps none
        now = outcome(path)
        if marker.exists():
            raise BreachError("code was run")
        if any(each.stat().st_atime > 0 for each in watched):
            raise BreachError(f"{state} was opened: {now[:200]}")
        if now != first:
            raise BreachError(f"{state} makes a difference: {first[:200]} / {now[:200]}")
    if "operations" in first:
        return first
    from joulecast.errors import InputError

    raise InputError(first.splitlines()[0])
