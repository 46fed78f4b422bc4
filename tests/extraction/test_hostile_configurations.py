"""Configurations from strangers (config.json): they run no code, open no other file, and build only transformers."""

import json
import os
import pickle
import subprocess
import sys

import pytest

import joulecast
from joulecast.errors import JoulecastError

transformers = pytest.importorskip("transformers", reason="needs joulecast[transformers]")
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 99}
BERT = {"model_type": "bert", "architectures": ["BertModel"], **SMALL}
VISION = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
CLIP = {"model_type": "clip", "text_config": SMALL, "vision_config": {**VISION, "image_size": 32, "patch_size": 16}}
TIMM = {"model_type": "timm_wrapper", "architecture": "resnet18", "num_classes": 2}


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def refusal(tmp_path, content):
    (path := tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(JoulecastError) as caught:
        joulecast.extract(path, (1, 3, 32, 32))
    return str(caught.value)


CHECKPOINTS = {
    "arguments of timm": lambda path: {**TIMM, "model_args": {"checkpoint_path": path}},
    "timm inside another": lambda path: {
        "model_type": "llava",
        "text_config": BERT,
        "vision_config": {**TIMM, "model_args": {"checkpoint_path": path}},
    },
    "a backbone": lambda path: {"model_type": "upernet", "backbone": path},
    "a backbone's configuration": lambda path: {
        "model_type": "detr",
        "backbone_config": {"model_type": "timm_backbone", "backbone": path},
    },
    "attention": lambda path: {**BERT, "attn_implementation": path},
    "attention inside another": lambda path: {**CLIP, "text_config": {**SMALL, "attn_implementation": path}},
    "experts": lambda path: {**BERT, "experts_implementation": path},
    "code": lambda path: {**BERT, "auto_map": {"AutoModel": path}},
    "an index": lambda path: {"model_type": "rag", "index_path": path, "question_encoder": BERT, "generator": BERT},
    "a rope": lambda path: {**BERT, "model_type": "llama", "rope_scaling": {"rope_type": path, "factor": 2.0}},
    "a class": lambda path: {**BERT, "architectures": [path]},
}


@pytest.mark.parametrize("attack", CHECKPOINTS)
def test_a_configuration_reads_no_other_file(tmp_path, attack):
    """What is said is the same whether the file is there or not, and it is not unpickled."""
    evil, marker = tmp_path / "evil.pt", tmp_path / "code-was-run"
    content = CHECKPOINTS[attack](str(evil))
    missing = refusal(tmp_path, content)
    evil.write_bytes(pickle.dumps(Evil(str(marker))))
    assert refusal(tmp_path, content) == missing
    evil.unlink()
    evil.mkdir()
    (evil / "config.json").write_text(json.dumps({"architecture": "resnet18", "num_classes": 2}))
    assert refusal(tmp_path, content) == missing
    assert not marker.exists()


REFUSED = {
    "kernels of the hub": ({**BERT, "attn_implementation": "kernels-community/flash-attn2"}, "kernels-community"),
    "trust": ({**BERT, "trust_remote_code": True}, "trust_remote_code"),
    "timm as a default": ({"model_type": "detr"}, "timm_backbone"),
    "a class of timm": ({**BERT, "architectures": ["TimmWrapperModel"]}, "TimmWrapperModel"),
    "a class that chooses": ({**BERT, "architectures": ["AutoModel"]}, "AutoModel"),
    "a function as a type": ({**BERT, "dtype": "load"}, "load"),
    "depth": ({**BERT, "rope_scaling": json.loads("[" * 50 + "]" * 50)}, "deep"),
}


@pytest.mark.parametrize(("content", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_configuration_may_not_name_is_refused_with_the_reason(tmp_path, content, says):
    assert says in refusal(tmp_path, content)


PUBLISHED = {
    "metadata": {
        **BERT,
        "_name_or_path": "someone/bert",
        "transformers_version": "4.40.0",
        "torch_dtype": "float32",
        "tokenizer_class": "BertTokenizer",
        "task_specific_params": {"x": {"prefix": "translate / to"}},
        "auto_map": None,
    },
    "labels": {**BERT, "architectures": ["BertForSequenceClassification"], "id2label": {"0": "n/a", "1": "b", "2": ""}},
    "parts": CLIP,
    "gated": {"model_type": "t5", "feed_forward_proj": "gated-gelu", "d_model": 64, "d_kv": 16, "d_ff": 96},
    "rope": {
        **SMALL,
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": 500000.0,
        "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0}
        | {"original_max_position_embeddings": 8192},
    },
    "names of another model": {"model_type": "gpt2", "hidden_size": 64, "n_head": 4, "num_hidden_layers": 2},
}


@pytest.mark.parametrize("content", PUBLISHED.values(), ids=PUBLISHED.keys())
def test_published_configurations_build_what_transformers_builds(content):
    from joulecast.extraction.models.transformers_models import from_config

    built = from_config(content)
    plain = transformers.CONFIG_MAPPING[content["model_type"]].from_dict(dict(content))
    assert sum(p.numel() for p in built.parameters()) == sum(p.numel() for p in type(built)(plain).parameters())
    if "rope_scaling" in content:
        assert built.config.rope_parameters == plain.rope_parameters


CONFINED = """
import os, socket, subprocess, sys
from pathlib import Path
from joulecast.extraction.isolated_worker import _confine
_confine(Path(sys.argv[1]))
Path(sys.argv[1]).read_text()
import colorsys
tried = [
    lambda: open(sys.argv[2]), lambda: open(sys.argv[1], "a"), lambda: os.open(sys.argv[2], os.O_RDONLY),
    lambda: open("/etc/passwd"), lambda: os.listdir("/"), lambda: subprocess.run(["true"]), lambda: os.system("true"),
    lambda: socket.create_connection(("127.0.0.1", 9)), lambda: os.remove(sys.argv[1]), lambda: os.fork(),
    lambda: __import__("pickle").loads(b"cposix\\nsystem\\n(Vtrue\\ntR."),
]
for number, each in enumerate(tried):
    try:
        each()
    except PermissionError:
        continue
    print("not refused:", number)
"""


def test_the_process_that_reads_a_file_can_do_nothing_else(tmp_path):
    """Whatever a library does with a file: other files, connections, programs and pickles are out of its reach."""
    for name in ("asked", "other"):
        (tmp_path / name).write_text("x")
    command = [sys.executable, "-c", CONFINED, str(tmp_path / "asked"), str(tmp_path / "other")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
