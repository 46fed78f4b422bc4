"""Values that a shell completes, asked for as bash asks."""

import pytest

from joulecast.cli import application

ASKED = {
    "predict resn": {"resnet18", "resnet50"},
    "predict resnet50 --gpu h100-s": {"h100-sxm"},
    "best resnet50 --gpu A30,H2": {"A30,H200"},
    "best resnet50 --objective en": {"energy", "energy_per_sample"},
    "predict resnet50 --precision b": {"bf16"},
    "generate llama3_1_": {"llama3_1_8b", "llama3_1_70b"},
    "generate llama3_8b --precision nv": {"nvfp4"},
    "generate llama3_8b --engine vl": {"vllm"},
    "best-generation llama3_8b --objective ": {"energy", "time", "gpus", "cost", "carbon"},
    "simulate llama3_1_": {"llama3_1_8b", "llama3_1_70b"},
    "simulate llama3_8b --precision mx": {"mxfp4"},
    "run bert_base --precision amp": {"amp", "amp_fp16"},
    "best-run bert_base --objective ": {"energy", "time", "cost", "carbon"},
    "image flux": {"flux_1_dev", "flux_1_schnell"},
    "predict resnet50 --optimizer adam": {"adam", "adamw_fused"},
    "predict resnet50 --execution ": {"eager", "graph", "compiled"},
    "best resnet50 --host h1": {"h100-server"},
    "predict resnet50 --predictor a30/": {"a30/forest-inference", "a30/forest-training"},
    "run bert_base --carbon D": {"DE", "DK"},
    "run bert_base --sharding zero": {"zero1", "zero2", "zero3"},
    "generate llama3_8b --batching s": {"static"},
    "explain conv2": {"conv2d"},
    "zoo show any-gpu/k": {"any-gpu/kernels"},
    "datasets import nico": {"nicolai2025"},
}


def completed(typed, monkeypatch, capsys):
    words = f"joulecast {typed}"
    for name, value in {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_JOULECAST_COMPLETE", "complete_bash")
    with pytest.raises(SystemExit):
        application()(args=[], prog_name="joulecast")
    return set(capsys.readouterr().out.split("\n"))


@pytest.mark.parametrize("typed", ASKED)
def test_values_are_completed(typed, monkeypatch, capsys):
    assert completed(typed, monkeypatch, capsys) >= ASKED[typed]


def test_numbers_are_not_completed(monkeypatch, capsys):
    assert completed("image flux_1_dev --gpus ", monkeypatch, capsys) == {""}
