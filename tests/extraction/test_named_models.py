"""Models by name: timm's, and names that nobody has. Those of torchvision stand in test_corpus and test_extraction."""

import importlib.util

import pytest

import joulecast
from joulecast.errors import MissingDependencyError, UnknownNameError
from joulecast.extraction.models.named_models import build_timm


@pytest.mark.parametrize("name", ["timm/resnet26d", "resnet26d", "vit_tiny_patch16_224.augreg_in21k"])
def test_timm(name):
    pytest.importorskip("timm")
    network = joulecast.extract(name, (2, 3, 224, 224))
    assert network.name == name
    assert network.flops > 1e9
    assert {entry.operation.kind for entry in network} & {"conv2d", "attention"}
    assert joulecast.extract(name, (2, 3, 224, 224)) == network


def test_timm_asks_for_timms():
    pytest.importorskip("timm")
    ours, theirs = (joulecast.extract(name, (1, 3, 64, 64)) for name in ("resnet50", "timm/resnet50"))
    assert ours.flops == theirs.flops
    assert ours.entries != theirs.entries  # Only the paths of modules differ.


@pytest.mark.parametrize("name", ["timm/resnet26x", "bert_bas", "../resnet50"])
def test_unknown_names(name):
    with pytest.raises(UnknownNameError, match="did you mean"):
        joulecast.extract(name, (1, 3, 224, 224))


def test_missing_timm_is_named(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None if name == "timm" else real(name, *a))
    with pytest.raises(MissingDependencyError, match=r"\.\[timm\]"):
        build_timm("timm/resnet26d")
